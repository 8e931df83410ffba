"""Maintenance windows: whether one is open, and until or from when. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from provisioner.api.errors import NeedsHuman
from provisioner.api.upgrade_strategy import MaintenanceWindow


def open_until(windows: Iterable[MaintenanceWindow], now: datetime) -> datetime | None:
    """When the last of the windows that are open at `now` closes; None if none is open.

    A window that opens at an hour which a change of clocks leaves out opens as that hour would have begun; one at an
    hour that comes twice opens the first time (after cronsim, which follows Debian's cron).
    Raises: NeedsHuman for a schedule or a time zone that does not exist.
    """
    closes = [close for window in windows if (close := _close_of(window, now)) is not None]
    return max(closes, default=None)


def opens_next(windows: Iterable[MaintenanceWindow], now: datetime) -> datetime | None:
    """When the next window opens after `now`; None if none ever does. Raises: as `open_until`."""
    openings = [opening for window in windows if (opening := next(_schedule(window, now), None)) is not None]
    return min(openings, default=None)


def _close_of(window: MaintenanceWindow, now: datetime) -> datetime | None:
    length = timedelta(seconds=window.duration_seconds)
    last = next(_schedule(window, now, backwards=True), None)
    return last + length if last is not None and last <= now < last + length else None


def _schedule(window: MaintenanceWindow, now: datetime, *, backwards: bool = False) -> CronSim:
    try:
        zone = ZoneInfo(window.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise NeedsHuman(
            f"a maintenance window names time zone '{window.time_zone}', which is not known here",
            hint="write an IANA name such as Europe/Berlin",
        ) from error
    # Backwards it yields what lies before the moment it is given, which may be an opening itself.
    start = now + timedelta(minutes=1) if backwards else now
    try:
        return CronSim(window.schedule, start.astimezone(zone), reverse=backwards)
    except CronSimError as error:
        raise NeedsHuman(
            f"a maintenance window has schedule '{window.schedule}', which is none: {error}",
            hint="write minute, hour, day of month, month and day of week, such as '0 22 * * SAT'",
        ) from error
