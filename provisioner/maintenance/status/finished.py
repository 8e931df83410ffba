"""Maintenances that have ended: how long they are kept, and how new ones are named. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.maintenance import FINAL_PHASES, Maintenance
from provisioner.api.meta import parse_time

KEPT_EACH: Final = 10
KEPT_FOR: Final = timedelta(days=14)
LAST_NUMBER: Final = 999_999_999
"""The last that admission lets people give; see provisioner/cli/data/requests.yaml."""


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


def next_name(server: str, names: Iterable[str]) -> str:
    """Name of the next Maintenance of `server`: one more than the highest number there is, which people may set.

    Beyond the last number the lowest free one is taken.
    """
    pattern = re.compile(rf"{re.escape(server)}-(\d{{1,9}})", re.ASCII)
    numbers = {int(found[1]) for name in names if (found := pattern.fullmatch(name))}
    number = max(numbers, default=0) + 1
    if number > LAST_NUMBER:
        number = next(n for n in range(1, len(numbers) + 2) if n not in numbers)
    return f"{server}-{number}"


def _end(maintenance: Maintenance) -> tuple[str, str, int, str]:
    meta = maintenance.metadata
    return maintenance.status.finished_time or "", meta.creation_timestamp or "", len(meta.name), meta.name
