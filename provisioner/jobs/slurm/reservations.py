"""Reservations of Slurm by which a node is closed for a moment to come: whose they are, and what is asked for. Pure.

A drain keeps every job away from when it is made. A reservation of the kind MAINT lets Slurm start what its time limit
ends before the reservation begins, and nothing from then on; what runs goes on. Slurm deletes it when it is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.jobs.slurm.objects import SlurmReservation

HOLD: Final = timedelta(days=7)
"""How long a node stays closed if nobody deletes its reservation: one that is forgotten is not so for ever."""

_PREFIX: Final = "provisioner-"
_FLAGS: Final = ("MAINT", "IGNORE_JOBS")
"""Not delayed by other reservations or by jobs that are there."""
_USERS: Final = ("root",)
"""Who may run jobs in it. Slurm wants somebody, and always knows this one."""


def reservation_name(maintenance: str) -> str:
    return _PREFIX + maintenance


def maintenance_of(reservation: SlurmReservation) -> str | None:
    """For which Maintenance it is, by its name; None if it is somebody else's."""
    found = reservation.name.removeprefix(_PREFIX)
    return found if found and found != reservation.name else None


def find_reservation(reservations: Iterable[SlurmReservation], name: str) -> SlurmReservation | None:
    return next((reservation for reservation in reservations if reservation.name == name), None)


def begin_no_sooner(begins: datetime, now: datetime) -> datetime:
    """In whole seconds, as Slurm counts, and not in the past, which it refuses."""
    return max(begins, now).replace(microsecond=0)


def is_as_wanted(found: SlurmReservation, begins: datetime, now: datetime) -> bool:
    """Whether it begins when it shall, or has begun: Slurm moves no such reservation, and no job is started there."""
    if found.begins is None:
        return False
    return found.begins == begins or (found.begins <= now and (found.ends is None or now < found.ends))


def reservation_body(found: SlurmReservation | None, name: str, node: str, begins: datetime) -> dict[str, Any]:
    """What slurmrestd is asked for: all of it, or, of one that is there, other times."""
    times = {"start_time": int(begins.timestamp()), "end_time": int((begins + HOLD).timestamp())}
    if found is not None:
        return {"name": name} | times
    return {"name": name, "node_list": [node], "flags": list(_FLAGS), "users": list(_USERS)} | times
