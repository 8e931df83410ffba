"""Fleets in few words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api.upgrade_strategy import Canary, UpgradeStrategy
from provisioner.rollout.fleet import Fleet, Member, RunningJob

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
AT_ONCE: dict[str, Any] = {"max_parallel": "100%", "max_unavailable": "100%", "canary": Canary(count=0)}
"""A strategy that holds nothing back."""


def strategy(**changes: Any) -> UpgradeStrategy:
    return UpgradeStrategy(**{**AT_ONCE, **changes})


def idle(name: str, **changes: Any) -> Member:
    return Member(**{"name": name, "state": "Outdated", **changes})


def busy(name: str, *jobs: str, free: float = 0.0, **changes: Any) -> Member:
    return Member(**{"name": name, "state": "Outdated", "jobs": jobs, "free": free, **changes})


def updated(name: str, minutes: float = 0.0, **changes: Any) -> Member:
    return Member(**{"name": name, "state": "Updated", "since": NOON - timedelta(minutes=minutes), **changes})


def fleet(*members: Member, jobs: Mapping[str, RunningJob] | None = None, **changes: Any) -> Fleet:
    """With a job for each key that a member names, unless it is given."""
    known = dict(jobs or {})
    for key in {key for member in members for key in member.jobs} - known.keys():
        known[key] = RunningJob(members=tuple(m.name for m in members if key in m.jobs), began=NOON)
    return Fleet(members=members, jobs=known, **changes)
