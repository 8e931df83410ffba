"""How a pool's servers move to another image: what the planner of rollouts is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provisioner.api.machinery.rules import AMOUNT_PATTERN, PRINTABLE_RULES
from provisioner.api.machinery.schema import CelRule, FieldSchema, described, listed, optional
from provisioner.api.pools.pool_settings import JobCheck

LONGEST_SOAK_SECONDS = 2_592_000


@dataclass(frozen=True, kw_only=True)
class Canary:
    """The servers that get a new image first."""

    count: int = described(
        "How many servers get a new image first. 0: none, the waves begin at once.",
        server_default=1,
        minimum=0,
        maximum=1000,
    )
    selector: str | None = optional(
        "Labels of the Servers that may be the first, such as example.com/canary=true; any if absent.",
        min_length=1,
        max_length=512,
    )
    soak_seconds: int = described(
        "How long they must be in use, without a fault, before others follow.",
        server_default=600,
        minimum=0,
        maximum=LONGEST_SOAK_SECONDS,
    )
    checks: tuple[JobCheck, ...] = listed(
        "Jobs of the site's own that run on a server before its use, beside spec.verification.checks, while it boots "
        "an image that has not passed the canary. One with the name of a check there is left out.",
        max_items=16,
        list_map_keys=("name",),
    )


@dataclass(frozen=True, kw_only=True)
class Wave:
    """A part of the pool that is updated, and used for a while, before more follow."""

    share: int = described("Servers of the pool that may have the new image, in percent.", minimum=1, maximum=100)
    soak_seconds: int = described(
        "How long they must be in use, without a fault, before more follow.",
        server_default=0,
        minimum=0,
        maximum=LONGEST_SOAK_SECONDS,
    )


@dataclass(frozen=True, kw_only=True)
class DomainCap:
    """How many servers that share a failure domain may be out of use at once. What is in none is not capped."""

    key: str = described(
        "What names the failure domain: 'rack' for the Server's rack, else a label of the Server, such as "
        "example.com/ib-leaf.",
        min_length=1,
        max_length=253,
        rules=PRINTABLE_RULES,
    )
    max_unavailable: int | str = described(
        "How many servers of one such domain may be out of use at once, whatever the reason: a count, or a share of "
        "the pool's servers in it, such as 25% (rounded up).",
        minimum=0,
        pattern=AMOUNT_PATTERN,
    )


@dataclass(frozen=True, kw_only=True)
class MaintenanceWindow:
    """When servers may be taken out of use."""

    schedule: str = described(
        "When it opens, as cron writes it: minute, hour, day of month, month, day of week, such as '0 22 * * SAT'.",
        max_length=128,
        pattern=r"^\S+\s+\S+\s+\S+\s+\S+\s+\S+$",
    )
    duration_seconds: int = described("How long it is open.", minimum=60, maximum=604800)
    time_zone: str = described(
        "IANA time zone that the schedule is meant in, such as Europe/Berlin.",
        server_default="UTC",
        max_length=64,
        pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$",
    )


@dataclass(frozen=True, kw_only=True)
class Stragglers:
    """Servers that are closed to new jobs although some of their GPUs are free, so that they empty at last."""

    after_seconds: int = described(
        "How long after the rollout began the first of them is closed.", minimum=0, maximum=31_536_000
    )
    max_closed: int | str = described(
        "How many may be closed so at once: a count, or a share of the pool such as 2% (rounded up). What is free of "
        "them idles until their last job has ended.",
        server_default="2%",
        minimum=0,
        pattern=AMOUNT_PATTERN,
    )


@dataclass(frozen=True, kw_only=True)
class UpgradeDeadline:
    """From when jobs are ended for a rollout, after their warning, and which. Never if absent."""

    after_seconds: int = described("How long after the rollout began jobs may be ended.", minimum=0, maximum=31_536_000)
    minimum_run_seconds: int = described(
        "For how long a job has run at least when it is ended, the time of its warning included.",
        server_default=0,
        minimum=0,
        maximum=31_536_000,
    )
    partitions: tuple[str, ...] = listed(
        "Slurm partitions whose jobs may be ended; those of all, and pods, if absent.",
        max_items=64,
        list_set=True,
        item=FieldSchema(doc="Name of a partition.", min_length=1, max_length=253, rules=PRINTABLE_RULES),
    )
    qos: tuple[str, ...] = listed(
        "Slurm's qualities of service whose jobs may be ended; those of all, and pods, if absent.",
        max_items=64,
        list_set=True,
        item=FieldSchema(doc="Name of a quality of service.", min_length=1, max_length=253, rules=PRINTABLE_RULES),
    )


@dataclass(frozen=True, kw_only=True)
class WorkloadGate:
    """Jobs that end on servers with the new image, compared with those on the old one."""

    failed_if: str | None = optional(
        "CEL expression: whether a job that has ended failed for the image's sake. Variables: kind, __namespace__, "
        "name, reason, exitCode, signal, partition, qos, labels. If absent: whatever ended other than in success, was "
        "not cancelled, preempted or evicted, and did not run into its time limit.",
        min_length=1,
        max_length=2048,
    )
    tolerance_percent: int = described(
        "By how many percentage points more jobs may fail on the new image than on the old one.",
        server_default=5,
        minimum=0,
        maximum=100,
    )
    confidence_percent: int = described(
        "How certain it must be that more fail than that for the rollout to stop.",
        server_default=95,
        minimum=50,
        maximum=99,
    )
    minimum_jobs: int = described(
        "How many jobs must have ended on the new image before a stage is over.",
        server_default=0,
        minimum=0,
        maximum=100_000,
    )


@dataclass(frozen=True, kw_only=True)
class UpgradeStrategy:
    """How a pool's servers move to another image, as their jobs end."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.waves) || self.waves.map(w, w.share).isSorted() && "
            "self.waves.all(w, self.waves.exists_one(v, v.share == w.share))",
            "each wave takes in more servers than the one before: write their shares in rising order",
            field=".waves",
        ),
    )
    paused: bool = described("Whether no further server is updated.", server_default=False)
    max_parallel: int | str | None = optional(
        "How many servers may be on their way to the new image at once: a count, or a share of the pool such as 10% "
        "(rounded up). Servers that failed to get there count until somebody decides. 0 pauses. 10% if absent.",
        minimum=0,
        pattern=AMOUNT_PATTERN,
    )
    max_unavailable: int | str | None = optional(
        "How many of the pool's servers may be out of use at once, whatever the reason, for another to be taken out: a "
        "count, or a share such as 25% (rounded up). 0 pauses. 25% if absent.",
        minimum=0,
        pattern=AMOUNT_PATTERN,
    )
    domains: tuple[DomainCap, ...] = listed(
        "Caps for each failure domain, such as a rack or a leaf switch.", max_items=8, list_map_keys=("key",)
    )
    canary: Canary = described("The servers that get a new image first.", default_factory=Canary)
    waves: tuple[Wave, ...] = listed(
        "Parts of the pool after the canary, in rising order; after the last one all others follow.",
        max_items=16,
        item=FieldSchema(doc="A part of the pool."),
    )
    windows: tuple[MaintenanceWindow, ...] = listed(
        "When servers may be taken out of use; always if absent.", max_items=16
    )
    stragglers: Stragglers | None = optional(
        "Which servers are closed to new jobs although some of their GPUs are free. None if absent."
    )
    steer_jobs: bool = described(
        "Whether new pods are steered away from the last servers that wait (taint with PreferNoSchedule), as far as "
        "enough others are free for jobs that need a whole one.",
        server_default=True,
    )
    deadline: UpgradeDeadline | None = optional(
        "From when jobs are ended for the rollout, after their warning. Never if absent: they are waited for."
    )
    workloads: WorkloadGate = described(
        "How jobs on the new image are compared with those on the old one.", default_factory=WorkloadGate
    )
    max_failures: int = described(
        "At how many servers that failed with a new image the rollout stops until a person decides.",
        server_default=1,
        minimum=1,
        maximum=100_000,
    )
    max_staging: int | str | None = optional(
        "How many servers may fetch the new image ahead at once, while jobs run there: a count, or a share of the pool "
        "such as 5% (rounded up). 5% if absent.",
        minimum=0,
        pattern=AMOUNT_PATTERN,
    )
    retried_time: str | None = optional(
        "A person's decision to go on: what failed before that moment counts no more, and is tried again. Set by "
        "`kubectl provision rollout resume`.",
        format="date-time",
    )
