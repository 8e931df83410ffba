"""Which servers are kept free of new jobs, so that they empty. Pure.

Where jobs queue, another takes the place of one that ends at once, and a server that stays open never empties. Closing
one whose jobs fill it costs nothing until one of them ends; from then on what is free idles until the last one has.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from provisioner.rollout.fleet import Fleet, Member, RunningJob

YOUNGEST_SECONDS: Final = 60.0
"""A job that has just begun is likely to go on for so long."""


def keep_free(
    fleet: Fleet, ahead: Sequence[Member], claims: Collection[str], idle_share: float, now: datetime
) -> tuple[frozenset[str], frozenset[str]]:
    """Servers that take no new job, and those that take one only if none else can.

    idle_share: how much may idle on closed servers, as a share of what being out of use for the image costs anyway. It
    is meant for those that are left, which is why the last ones may cost more each.
    """
    attempt = fleet.attempt.total_seconds()
    worth = idle_share * attempt * len(fleet.members) / max(1, len(ahead))
    closed = {m.name for m in ahead if m.jobs and closing_costs(m, fleet.jobs, now) <= worth}
    return frozenset(closed), frozenset(m.name for m in ahead if m.name not in closed and m.name not in claims)


def closing_costs(member: Member, jobs: Mapping[str, RunningJob], now: datetime) -> float:
    """Seconds of the whole server that are likely to idle until its last job ends, if it takes no new one, and those
    that have idled at most since it was closed.

    How long a job goes on nobody knows: as long again as it has run, for of jobs in data centres those that are old are
    the ones that last; no longer than it may.
    """
    if len(member.jobs) == 1 and member.free <= 0:
        return 0.0
    rests = [_rest(jobs.get(key), now) for key in member.jobs]
    last = max(rests)
    if last == math.inf:
        return math.inf
    share = (1 - member.free) / len(rests)
    coming = member.free * last + share * sum(last - rest for rest in rests)
    spent = member.free * (now - member.closed_since).total_seconds() if member.closed_since is not None else 0.0
    return coming + spent


def _rest(job: RunningJob | None, now: datetime) -> float:
    """Seconds for which a job is likely to go on."""
    if job is None:
        return math.inf
    left = max(0.0, (job.ends - now).total_seconds()) if job.ends is not None else math.inf
    age = (now - job.began).total_seconds() if job.began is not None else math.inf
    return min(left, max(age, YOUNGEST_SECONDS))
