"""How far a pool's servers are on their way to another image: what the rollout says in a NodePool's status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from provisioner.api.machinery.rules import PRINTABLE_RULES
from provisioner.api.machinery.schema import described, listed, optional

RolloutStage = Literal["Canary", "CanarySoak", "Wave", "WaveSoak", "Rest"]
RolloutOutcome = Literal["Completed", "Superseded"]


@dataclass(frozen=True, kw_only=True)
class ReleasedImage:
    """An image that servers may boot for which it is not the rollout's turn, or that have nothing to lose."""

    image_ref: str = described("Its name.", max_length=253)
    time: str = described("When it passed the canary, or became the pool's first.", format="date-time")
    verified_time: str | None = optional(
        "When a server of the pool was first seen in use with it; until then the pool's next image takes its place at "
        "once.",
        format="date-time",
    )


@dataclass(frozen=True, kw_only=True)
class RolloutStop:
    """Why the rollout stopped itself. A person goes on by another image, by undo, or by resume."""

    time: str = described("When it did.", format="date-time")
    reason: Literal["Failures", "Workloads"] = described(
        "Failures: too many servers failed with the image. Workloads: too many jobs do."
    )
    message: str = described("What was observed, and what to do.", max_length=1024)


@dataclass(frozen=True, kw_only=True)
class WaitCount:
    """How many servers wait for the same."""

    reason: str = described("What for, one CamelCase word.", max_length=63, rules=PRINTABLE_RULES)
    count: int = described("How many.", minimum=0)


@dataclass(frozen=True, kw_only=True)
class RolloutBlocker:
    """A job that servers wait for."""

    job: str = described("What it is, such as SlurmJob 4711.", max_length=512)
    servers: int = described("How many servers wait for it.", minimum=1)
    expected_time: str | None = optional("When it ends at the latest, if that is known.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class JobTally:
    """Jobs that have ended on servers with one image."""

    ended: int = described("How many.", minimum=0)
    failed: int = described("How many of them failed.", minimum=0)


@dataclass(frozen=True, kw_only=True)
class WorkloadComparison:
    """Jobs that ended since the rollout began."""

    old: JobTally = described("On servers with another image.")
    new: JobTally = described("On servers with the new image, or spanning one of them.")
    counted_time: str = described("Up to which end jobs were counted.", format="date-time")
    message: str = described("What that says, with its uncertainty.", max_length=1024)


@dataclass(frozen=True, kw_only=True)
class RolloutStatus:
    """One image on its way through a pool."""

    image_ref: str = described("The image.", max_length=253)
    previous_image_ref: str | None = optional(
        "Image that was released when it began: what `kubectl provision rollout undo` goes back to.", max_length=253
    )
    started_time: str = described("When it began.", format="date-time")
    completed_time: str | None = optional("When all servers had it.", format="date-time")
    moved_time: str | None = optional(
        "When servers of other NodePools began to move in, where that is why it goes on.", format="date-time"
    )
    stage: RolloutStage | None = optional("Where it is.")
    passed: int = described("How many stages (canary, waves) are over.", server_default=0, minimum=0)
    message: str = described("Where it is and what it waits for, in words.", default="", max_length=1024)
    expected_time: str | None = optional(
        "When it is complete, should jobs end when expected and nothing fail; absent if that is not known.",
        format="date-time",
    )
    stopped: RolloutStop | None = optional("Why it stopped itself, if it did.")
    waits: tuple[WaitCount, ...] = listed("What servers wait for, and how many.", max_items=32)
    blockers: tuple[RolloutBlocker, ...] = listed(
        "Jobs that servers wait for, those first for which the most wait.", max_items=16
    )
    workloads: WorkloadComparison | None = optional("Jobs on the new image compared with those on the old one.")


@dataclass(frozen=True, kw_only=True)
class RolloutRecord:
    """A rollout that is over."""

    image_ref: str = described("The image.", max_length=253)
    previous_image_ref: str | None = optional("Image that was released when it began.", max_length=253)
    started_time: str = described("When it began.", format="date-time")
    ended_time: str = described("When it was over.", format="date-time")
    outcome: RolloutOutcome = described("Completed: all servers had it. Superseded: another image took its place.")
    updated: int = described("How many servers had it then.", minimum=0)
    failed: int = described("How many had failed with it.", minimum=0)
    message: str = described("Where it was, in words.", default="", max_length=1024)
