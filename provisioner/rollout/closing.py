"""Which servers are kept free of new jobs, so that they empty. Pure.

Where jobs queue, another takes the place of one that ends at once, and a server that stays open never empties. Closing
one that a single job fills costs nothing. Closing another idles what is free of it until its last job has ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from provisioner.rollout.fleet import Fleet, Member, Occupancy

YOUNGEST_SECONDS: Final = 60.0
"""A job that has just begun is likely to go on for so long."""


def find_closed(fleet: Fleet, busy: Iterable[Member], left: int, idle_share: float, now: float) -> frozenset[str]:
    """Those of `busy` that take no new job.

    idle_share: how much may idle on closed servers, as a share of what being out of use for the image costs anyway. It
    is meant for the servers that are left, so many, which is why the last ones may cost more each.
    """
    worth = idle_share * fleet.attempt.total_seconds() * len(fleet.members) / max(1, left)
    return frozenset(m.name for m in busy if m.runs is not None and closing_costs(m.runs, m.closed_since, now) <= worth)


def closing_costs(runs: Occupancy, closed_since: float | None, now: float) -> float:
    """Seconds of a whole server that are likely to idle until its last job ends, if it takes no new one, and those that
    have idled at most since it was closed.

    How long a job goes on nobody knows: as long again as it has run, for of jobs in data centres those that are old are
    the ones that last; no longer than it may.
    """
    if runs.free <= 0 and len(runs.jobs) == 1:
        return 0.0
    if runs.first is None or runs.average is None:
        return math.inf
    last = max(now - runs.first, YOUNGEST_SECONDS)
    if runs.ends is not None:
        last = min(last, max(0.0, runs.ends - now))
    average = min(last, max(now - runs.average, YOUNGEST_SECONDS))
    spent = runs.free * (now - closed_since) if closed_since is not None else 0.0
    return runs.free * last + (1 - runs.free) * (last - average) + spent
