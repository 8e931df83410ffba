"""Jobs that have ended, in few words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.jobs.model.ended import EndedJob

NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """So many seconds after noon, or before."""
    return NOON + timedelta(seconds=seconds)


def ended(name: str = "4711", *servers: str, began: float = 0, at: float = 60, **changes: Any) -> EndedJob:
    """A job that failed, from so many to so many seconds after noon."""
    job = EndedJob(
        kind="SlurmJob",
        key=f"{changes.get('namespace', '')}/{name}",
        name=name,
        servers=servers or ("r01-u01",),
        began=after(began),
        ended=after(at),
        succeeded=False,
        reason="FAILED",
        exit_code=1,
        partition="batch",
    )
    return replace(job, **changes)
