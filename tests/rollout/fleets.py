"""Fleets in few words."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from provisioner.api.pools.upgrade_strategy import Canary, UpgradeStrategy
from provisioner.rollout.fleet import Member, Occupancy, PoolSnapshot

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
AT_ONCE: dict[str, Any] = {"max_parallel": "100%", "max_unavailable": "100%", "canary": Canary(count=0)}
"""A strategy that holds nothing back."""


def strategy(**changes: Any) -> UpgradeStrategy:
    return UpgradeStrategy(**{**AT_ONCE, **changes})


def after(hours: float) -> float:
    """So many hours after noon, or before, in seconds since the epoch."""
    return NOON.timestamp() + hours * 3600


def idle(name: str, **changes: Any) -> Member:
    return Member(**{"name": name, "state": "Outdated", **changes})


def busy(
    name: str,
    *jobs: str,
    free: float = 0.0,
    began: float = 0.0,
    ends: float | None = None,
    may_end: float | None = None,
    **changes: Any,
) -> Member:
    """With jobs that all began, end, and may be ended from, so many hours after noon."""
    runs = Occupancy(
        jobs=jobs,
        free=free,
        first=after(began),
        ends=None if ends is None else after(ends),
        interruptible=None if may_end is None else after(may_end),
    )
    return Member(name=name, state="Outdated", runs=runs, **changes)


def updated(name: str, minutes: float = 0.0, **changes: Any) -> Member:
    return Member(**{"name": name, "state": "Updated", "since": after(-minutes / 60), **changes})


def fleet(*members: Member, **changes: Any) -> PoolSnapshot:
    """Jobs of one name are one job. The rollout began at noon."""
    widths = Counter(key for member in members if member.runs is not None for key in member.runs.jobs)
    return PoolSnapshot(**{"members": members, "widths": widths, "began": after(0), **changes})
