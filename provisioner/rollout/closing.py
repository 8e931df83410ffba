"""Which servers are kept free of new jobs, so that they empty. Pure.

Where jobs queue, another takes the place of one that ends at once, and a server that stays open never empties. Closing
one that a single job fills costs nothing. Closing another idles what is free of it until its last job has ended; that
is for stragglers, so many at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from provisioner.api.upgrade_strategy import Stragglers
from provisioner.rollout.amounts import resolve_amount
from provisioner.rollout.fleet import Fleet, Member, Occupancy


def find_closed(fleet: Fleet, busy: Sequence[Member], stragglers: Stragglers | None, now: float) -> frozenset[str]:
    """Those of `busy` that take no new job. A straggler that is closed stays so until it is empty."""
    closed = [member.name for member in busy if is_filled_by_one(member.runs)]
    if stragglers is not None and now >= fleet.began + stragglers.after_seconds:
        most = resolve_amount(stragglers.max_closed, len(fleet.members))
        open_ = (member for member in busy if not is_filled_by_one(member.runs))
        closed += [member.name for member in heapq.nsmallest(most, open_, key=_reluctance)]
    return frozenset(closed)


def is_filled_by_one(runs: Occupancy | None) -> bool:
    """Whether a single job leaves nothing free: until it ends nothing else could run there anyway."""
    return runs is not None and len(runs.jobs) == 1 and runs.free <= 0


def _reluctance(member: Member) -> tuple[bool, float]:
    """Of stragglers that are to be closed, those that are come first, then those whose oldest job is the youngest: of
    jobs in data centres, those that have run for long are the ones that go on for long."""
    first = member.runs.first if member.runs is not None else None
    return not member.closed, -first if first is not None else float("inf")
