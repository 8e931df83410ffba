"""What a boot usually takes in a pool: the median of each phase, over boots that became Ready. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Final

from provisioner.api.servers.boot_stage import BOOT_STAGES, BootStage
from provisioner.web.row import FinishedBoot, ServerRow

FEWEST: Final = 3
"""Of fewer boots no median is told: it would be one server's figure under another name."""


@dataclass(frozen=True, kw_only=True)
class UsualBoot:
    """In seconds. servers: how many boots it is made of."""

    phases: Mapping[BootStage, float]
    total_seconds: float
    servers: int


def usual_boot(rows: Iterable[ServerRow], *, by_agent: bool) -> UsualBoot | None:
    """Of `rows`, those whose boot was of the same kind: from power-on, or by the agent in the running system. None of
    too few. A phase that was seen in fewer boots than that has no median."""
    boots = [row.boot for row in rows if row.boot is not None and row.boot.by_agent == by_agent]
    if len(boots) < FEWEST:
        return None
    return UsualBoot(
        phases={stage: median(seconds) for stage in BOOT_STAGES if len(seconds := _of(stage, boots)) >= FEWEST},
        total_seconds=median(boot.total_seconds for boot in boots),
        servers=len(boots),
    )


def _of(stage: BootStage, boots: Iterable[FinishedBoot]) -> list[float]:
    return [boot.phases[stage] for boot in boots if stage in boot.phases]
