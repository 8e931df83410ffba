"""Maintenances that have ended: how long they are kept. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance

KEPT_EACH: Final = 10
KEPT_FOR: Final = timedelta(days=14)


def newest_first(maintenances: Iterable[Maintenance]) -> tuple[Maintenance, ...]:
    """Those that have ended, the one that ended last first."""
    ended = [m for m in maintenances if m.status.phase in FINAL_PHASES]
    return tuple(sorted(ended, key=_end, reverse=True))


def is_due(maintenances: Iterable[Maintenance], now: datetime) -> Maintenance | None:
    """One that need not be kept: neither among the last ten of its server nor of the last two weeks."""
    for maintenance in reversed(newest_first(maintenances)[KEPT_EACH:]):
        finished = maintenance.status.finished_time
        if maintenance.metadata.deletion_timestamp is not None or maintenance.status.slurm is not None:
            continue  # it goes already; or it still has to lift its drain in Slurm
        if finished and now - parse_time(finished) > KEPT_FOR:
            return maintenance
    return None


def _end(maintenance: Maintenance) -> tuple[str, str, int, str]:
    meta = maintenance.metadata
    return maintenance.status.finished_time or "", meta.creation_timestamp or "", len(meta.name), meta.name
