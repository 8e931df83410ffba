"""Part of a NodePool: how its servers move to another image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from provisioner.api.rules import PRINTABLE_RULES
from provisioner.api.schema import FieldSchema, Rule, described

_COUNT_OR_SHARE = "self.matches('^(0|[1-9][0-9]{0,5})$|^(0|[1-9][0-9]?|100)%$')"


def _amount(field: str) -> Rule:
    return Rule(
        f"!has(self.{field}) || (type(self.{field}) == int ? self.{field} >= 0 : "
        f"self.{field}.{_COUNT_OR_SHARE.removeprefix('self.')})",
        f"{field} is a count such as 2, or a share from 0% to 100%, such as 10%",
        field=f".{field}",
    )


@dataclass(frozen=True, kw_only=True)
class Canary:
    """The servers that get a new image first."""

    count: int = described(
        "How many servers get a new image first. 0: none, the waves begin at once.",
        default=1,
        server_default=1,
        minimum=0,
        maximum=1000,
    )
    soak_seconds: int = described(
        "How long they must be in use, without a fault, before others follow.",
        default=600,
        server_default=600,
        minimum=0,
        maximum=2_592_000,
    )


@dataclass(frozen=True, kw_only=True)
class Wave:
    """A part of the pool that is updated, and used for a while, before more follow."""

    share: int = described("Servers of the pool that may have the new image, in percent.", minimum=1, maximum=100)
    soak_seconds: int = described(
        "How long they must be in use, without a fault, before more follow.",
        default=0,
        server_default=0,
        minimum=0,
        maximum=2_592_000,
    )


@dataclass(frozen=True, kw_only=True)
class DomainCap:
    """How many servers that share a failure domain may be out of use at once."""

    RULES: ClassVar[tuple[Rule, ...]] = (_amount("maxUnavailable"),)
    key: str = described(
        "What names the failure domain: 'rack' for the Server's rack, else a label of the Server, such as "
        "example.com/ib-leaf.",
        min_length=1,
        max_length=253,
        rules=PRINTABLE_RULES,
    )
    max_unavailable: int | str = described(
        "How many servers of one such domain may be out of use at once, whatever the reason: a count, or a share of "
        "the pool's servers in it, such as 25% (rounded up)."
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
        default="UTC",
        server_default="UTC",
        max_length=64,
        pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$",
    )


@dataclass(frozen=True, kw_only=True)
class UpgradeStrategy:
    """How a pool's servers move to another image, as their jobs end."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        _amount("maxParallel"),
        _amount("maxUnavailable"),
        Rule(
            "!has(self.waves) || self.waves.all(w, self.waves.filter(v, v.share == w.share).size() == 1) && "
            "self.waves.map(w, w.share) == self.waves.map(w, w.share).sort()",
            "each wave takes in more servers than the one before: write their shares in rising order",
            field=".waves",
        ),
    )
    paused: bool = described("Whether no further server is updated.", default=False, server_default=False)
    max_parallel: int | str | None = described(
        "How many servers may be on their way to the new image at once: a count, or a share of the pool such as 10% "
        "(rounded up). Servers that failed to get there count until somebody decides. 0 pauses. 10% if absent.",
        default=None,
    )
    max_unavailable: int | str | None = described(
        "How many of the pool's servers may be out of use at once, whatever the reason, for another to be taken out: a "
        "count, or a share such as 25% (rounded up). 0 pauses. 25% if absent.",
        default=None,
    )
    domains: tuple[DomainCap, ...] = described(
        "Caps for each failure domain, such as a rack or a leaf switch.",
        default=(),
        max_items=8,
        list_map_keys=("key",),
    )
    canary: Canary = described("The servers that get a new image first.", default_factory=Canary)
    waves: tuple[Wave, ...] = described(
        "Parts of the pool after the canary, in rising order; after the last one all others follow.",
        default=(),
        max_items=16,
        item=FieldSchema(doc="A part of the pool."),
    )
    windows: tuple[MaintenanceWindow, ...] = described(
        "When servers may be taken out of use; always if absent.", default=(), max_items=16
    )
    max_failures: int = described(
        "How many servers may fail with a new image before the rollout pauses itself.",
        default=1,
        server_default=1,
        minimum=1,
        maximum=100_000,
    )
    idle_percent: int = described(
        "How much may idle so that servers empty: they are closed to new jobs although some of their GPUs are free. In "
        "percent of the time for which the updates themselves take servers out of use. A high share ends a rollout on "
        "a crowded cluster sooner.",
        default=5,
        server_default=5,
        minimum=0,
        maximum=1_000_000,
    )
