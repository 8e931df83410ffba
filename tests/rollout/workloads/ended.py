"""Jobs that have ended, in few words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """So many seconds after noon, or before."""
    return NOON + timedelta(seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """`provisioner.rollout.workloads.failed.EndedWork`."""

    kind: str = "SlurmJob"
    namespace: str | None = None
    name: str = "4711"
    key: str = ""
    servers: tuple[str, ...] = ("r01-u01",)
    began: datetime | None = NOON
    ended: datetime = NOON + timedelta(minutes=1)
    succeeded: bool = False
    reason: str | None = "FAILED"
    exit_code: int | None = 1
    signal: int | None = None
    partition: str | None = "batch"
    qos: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def ended(name: str = "4711", *servers: str, began: float = 0, at: float = 60, **changes: Any) -> Ended:
    """A job that failed, from so many to so many seconds after noon."""
    key = f"{changes.get('namespace', '')}/{name}"
    where = servers or ("r01-u01",)
    return replace(Ended(), name=name, key=key, servers=where, began=after(began), ended=after(at), **changes)
