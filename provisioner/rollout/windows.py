"""Maintenance windows: whether one is open, and until or from when. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.pools.upgrade_strategy import MaintenanceWindow

_LOOK_BACK: Final = tuple(timedelta(hours=hours) for hours in (1, 24, 24 * 7))
"""How far back the last opening is looked for, first near, so that one that opens each minute takes no long look."""


def open_until(windows: Iterable[MaintenanceWindow], now: datetime) -> datetime | None:
    """When the last of the windows that are open at `now` closes, in UTC; None if none is open.

    A window is open for its whole duration, whatever the clocks do meanwhile. At an hour that a change of clocks leaves
    out it opens when that hour would have begun; at one that comes twice, as cronsim has it, after Debian's cron.
    Raises: NeedsHuman for a schedule or a time zone that does not exist.
    """
    closes = [close for window in windows if (close := _close_of(window, now)) is not None]
    return max(closes, default=None)


def opens_next(windows: Iterable[MaintenanceWindow], now: datetime) -> datetime | None:
    """When the next window opens after `now`, in UTC; None if none ever does. Raises: as `open_until`."""
    openings = [opening for window in windows if (opening := next(_openings(window, now), None)) is not None]
    return min((opening.astimezone(UTC) for opening in openings), default=None)


def _close_of(window: MaintenanceWindow, now: datetime) -> datetime | None:
    length = timedelta(seconds=window.duration_seconds)
    for back in _LOOK_BACK:
        last = None
        for opening in _openings(window, now - min(back, length)):
            if opening > now:
                break
            last = opening.astimezone(UTC)  # in its own zone, an hour more or less would go unseen
        if last is not None:
            return last + length if now < last + length else None
        if back >= length:
            break
    return None


def _openings(window: MaintenanceWindow, after: datetime) -> CronSim:
    try:
        zone = ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise NeedsHuman(
            f"a maintenance window names time zone '{window.time_zone}', which is not known here",
            hint="write an IANA name such as Europe/Berlin",
        ) from error
    try:
        return CronSim(window.schedule, after.astimezone(zone))
    except CronSimError as error:
        raise NeedsHuman(
            f"a maintenance window has schedule '{window.schedule}', which is none: {error}",
            hint="write minute, hour, day of month, month and day of week, such as '0 22 * * SAT'",
        ) from error
