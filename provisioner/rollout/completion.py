"""When a rollout that interrupts nothing can be complete. Pure.

With r(1) to r(N) the moments at which the servers' last jobs end, in rising order, the same time R for each server and
k at once, none is complete before the latest r(j) + ceil((N - j + 1) / k) * R over all j: those that are not released
before r(j) need so many rounds after it. To begin each server when it is released, or as soon as there is room, gets
there, and needs no knowledge of when jobs will end.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from provisioner.rollout.fleet import Member, PoolSnapshot


def lower_bound(releases: Iterable[float], parallel: int, attempt: float) -> float:
    """Seconds that a rollout takes at least which interrupts nothing.

    releases: when the last job of each server ends, in seconds; `parallel` at a time, each for `attempt` seconds.
    """
    ordered = sorted(releases)
    rest = len(ordered)
    # Of those that need equally many rounds the last released one counts.
    last = range(rest - 1, -1, -parallel)
    return max((ordered[j] + (number + 1) * attempt for number, j in enumerate(last)), default=0.0)


def expect_completion(
    fleet: PoolSnapshot, idle: int, busy: Iterable[Member], updating: int, parallel: int, now: datetime
) -> datetime | None:
    """When all of `idle` servers, the `busy` and the `updating` have the image, `parallel` at once, if every job ends
    when it is expected to and nothing fails. None if that is not known of some job, nothing may go on, or there are
    none."""
    moment = now.timestamp()
    releases = [0.0] * idle
    ends = [member.runs.ends for member in busy if member.runs is not None]
    releases += [max(0.0, end - moment) for end in ends if end is not None]
    if len(releases) < idle + len(ends):
        return None
    if not releases:
        return now + fleet.attempt if updating else None
    if parallel < 1:
        return None
    latest = timedelta(seconds=lower_bound(releases, parallel, fleet.attempt.total_seconds()))
    return now + max(latest, fleet.attempt if updating else timedelta())
