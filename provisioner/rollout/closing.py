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
from provisioner.rollout.fleet import Fleet, Member


def find_closed(fleet: Fleet, busy: Sequence[Member], stragglers: Stragglers | None, now: float) -> frozenset[str]:
    """Those of `busy` that take no new job. A straggler that is closed stays so until it is empty."""
    closed = [m.name for m in busy if m.runs and m.runs.free <= 0 and len(m.runs.jobs) == 1]
    if stragglers is not None and now >= fleet.began + stragglers.after_seconds:
        most = resolve_amount(stragglers.max_closed, len(fleet.members))
        free = set(closed)  # until its one job ends nothing else could run there anyway
        open_ = (member for member in busy if member.name not in free)
        closed += [member.name for member in heapq.nsmallest(most, open_, key=_reluctance)]
    return frozenset(closed)


def _reluctance(member: Member) -> tuple[bool, float]:
    """Of stragglers that are to be closed, those that are come first, then those whose oldest job is the youngest: of
    jobs in data centres, those that have run for long are the ones that go on for long."""
    first = member.runs.first if member.runs is not None else None
    return not member.closed, -first if first is not None else float("inf")
