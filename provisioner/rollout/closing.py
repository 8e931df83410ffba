"""Which servers are kept free of new jobs, so that they empty. Pure.

Where jobs queue, another takes the place of one that ends at once, and a server that stays open never empties. Closing
one that a single job fills costs nothing. Closing another idles what is free of it until its last job has ended; that
is for stragglers, so many at once. To steer jobs away idles nothing, but what would have filled a server in part goes
to another, at worst to one that is free as a whole and that a wide job needs: it is for the last servers, of which each
may cost one that is free; one at a time where none is.

Where Slurm is told until when the jobs of such a one run at the latest, it may start others there that end by then, and
less idles. One that a single job fills is closed outright: nothing could start there sooner, and if its job ends
before its time, another would take its place.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Final

from provisioner.api.pools.upgrade_strategy import Stragglers
from provisioner.rollout.fleet import Member, PoolSnapshot
from provisioner.rules.amounts import resolve_amount

LEAST_SECONDS: Final = 900.0
"""A server that is empty sooner is closed outright: hardly a job would start there and end in so little time."""
MOVED_SECONDS: Final = 900.0
"""By less than that the end of the jobs moves no moment that was named before."""
MOST_SECONDS: Final = 366 * 86_400.0
"""Whose jobs may run for longer is closed outright: nobody plans that far."""
_WHOLE_SECONDS: Final = 60.0
_LAST_SHARE: Final = 0.25
_LAST_SERVERS: Final = 3
"""While more than that share of the pool and more than so many servers are left, most of them empty without help."""
_KEPT_SHARE: Final = 0.05
"""Of the pool, that many servers which are free as a whole are left to jobs that need one."""


def find_closed(
    fleet: PoolSnapshot, busy: Sequence[Member], stragglers: Stragglers | None, now: float
) -> frozenset[str]:
    """Those of `busy` that take no new job. A straggler that is closed stays so until it is empty."""
    closed = [m.name for m in busy if _is_filled_by_one(m)]
    if stragglers is not None and now >= fleet.began + stragglers.after_seconds:
        most = resolve_amount(stragglers.max_closed, len(fleet.members))
        free = set(closed)  # until its one job ends nothing else could run there anyway
        open_ = (member for member in busy if member.name not in free)
        closed += [member.name for member in heapq.nsmallest(most, open_, key=_reluctance)]
    return frozenset(closed)


def find_steered(fleet: PoolSnapshot, open_: Sequence[Member], waiting: Sequence[Member], now: float) -> frozenset[str]:
    """Those on which a job shall start only where no other server can take it: of the last `open_` ones that run jobs,
    those that may be empty soonest; and the idle ones that are `waiting` for their turn."""
    steered = [member.name for member in waiting]
    size = len(fleet.members)
    if are_last(sum(m.state == "Outdated" and m.excluded is None for m in fleet.members), size):
        most = max(1, fleet.free + len(waiting) - math.floor(size * _KEPT_SHARE))
        soonest = heapq.nsmallest(most, open_, key=lambda member: _expected_seconds(member, now))
        steered += [member.name for member in soonest]
    return frozenset(steered)


def are_last(left: int, size: int) -> bool:
    """Whether so few of a pool of `size` servers are without the image that jobs are steered away from them."""
    return left <= max(_LAST_SERVERS, math.ceil(size * _LAST_SHARE))


def _expected_seconds(member: Member, now: float) -> float:
    """Until the server is empty: by the known ends, or else as long as its oldest job has run already."""
    runs = member.runs
    if runs is None or (runs.ends is None and runs.first is None):
        return math.inf
    return runs.ends - now if runs.ends is not None else now - (runs.first or now)


def find_reserved(fleet: PoolSnapshot, closed: Iterable[Member], now: float) -> dict[str, float]:
    """Those of `closed` on which jobs may start that end by that moment, in seconds since the epoch, and none from then
    on: where a part is free, and of all jobs that run there it is known by when they have ended.

    A moment that was named stays while it is to come, but where the known end moves by much.
    """
    if not fleet.has_slurm:
        return {}
    moments = ((member.name, _closes_at(member, now)) for member in closed if not _is_filled_by_one(member))
    return {name: moment for name, moment in moments if moment is not None}


def _closes_at(member: Member, now: float) -> float | None:
    runs = member.runs
    if runs is None:
        return None
    before = member.reserved if member.reserved is not None and member.reserved > now else None
    ends = runs.begun_ends
    if ends is None or (before is not None and abs(ends - before) < MOVED_SECONDS):
        return before
    if not now + LEAST_SECONDS <= ends <= now + MOST_SECONDS or (before is None and runs.free <= 0):
        return None
    return math.ceil(ends / _WHOLE_SECONDS) * _WHOLE_SECONDS


def _is_filled_by_one(member: Member) -> bool:
    runs = member.runs
    return runs is not None and runs.free <= 0 and len(runs.jobs) == 1


def _reluctance(member: Member) -> tuple[bool, float]:
    """Of stragglers that are to be closed, those that are come first, then those whose oldest job is the youngest: of
    jobs in data centres, those that have run for long are the ones that go on for long."""
    first = member.runs.first if member.runs is not None else None
    return not member.closed, -first if first is not None else float("inf")
