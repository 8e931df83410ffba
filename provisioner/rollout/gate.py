"""Jobs on the new image against those on the old one, as the rollout keeps count of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api import NodePool
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.rollout_status import RolloutStatus, RolloutStop, WorkloadComparison
from provisioner.rollout.standing import MemberFacts
from provisioner.rollout.workloads.compare import WorkloadVerdict, compare
from provisioner.rollout.workloads.tally import Tallied

RECOUNT_BEFORE: Final = timedelta(hours=12)
"""While no job ends the moment up to which jobs are counted is not written anew; it is after so long."""


def counted_before(rollout: RolloutStatus, pool: NodePool) -> Tallied:
    """What is on record; nothing at the begin, and once a person has decided that it goes on."""
    known = rollout.workloads
    if known is not None:
        return Tallied(old=known.old, new=known.new, counted=parse_time(known.counted_time))
    retried = pool.spec.upgrade_strategy.retried_time
    begins = [rollout.started_time, *([retried] if retried is not None else [])]
    return Tallied(counted=max(parse_time(time) for time in begins).replace(microsecond=0))


def new_since(standings: Mapping[str, MemberFacts]) -> dict[str, datetime]:
    """The servers that run the new image, and since when they could take jobs, whatever became of them then."""
    found = {}
    for name, standing in standings.items():
        status = standing.server.status
        if standing.has_image and status.ready_time is not None:
            found[name] = parse_time(status.ready_time)
    return found


def weigh(
    rollout: RolloutStatus, pool: NodePool, counted: Tallied, running: Collection[str], now: datetime
) -> tuple[RolloutStatus, str | None]:
    """The rollout with the comparison on record, stopped if too many fail; and why no stage is over yet, if so.

    running: keys of the jobs that run on servers with the new image.
    """
    gate = pool.spec.upgrade_strategy.workloads
    verdict = compare(counted.old, counted.new, gate, running=len(running))
    rollout = replace(rollout, workloads=_comparison(rollout.workloads, counted, verdict))
    if verdict.name == "Bad" and rollout.stopped is None:
        words = (
            f"jobs fail with Image '{rollout.image_ref}': {verdict.words}. Look at what they say, then go back "
            f"(kubectl provision rollout undo {pool.name}), name a better image, or count anew "
            f"(kubectl provision rollout resume {pool.name})"
        )
        rollout = replace(rollout, stopped=RolloutStop(time=rfc3339(now), reason="Workloads", message=words[:1024]))
    return rollout, verdict.words if verdict.name == "TooFew" else None


def _comparison(
    before: WorkloadComparison | None, counted: Tallied, verdict: WorkloadVerdict
) -> WorkloadComparison | None:
    """The same as before while no job is new: each would be one more write."""
    if not counted.old.ended and not counted.new.ended:
        return before
    words = verdict.words
    if counted.fault is not None:
        words += f"; for {quantity(counted.faults, 'job')} failedIf says nothing, such as {counted.fault}"
    if before is not None and (before.old, before.new) == (counted.old, counted.new):
        if counted.counted - parse_time(before.counted_time) < RECOUNT_BEFORE:
            return before
        words = before.message
    return WorkloadComparison(
        old=counted.old, new=counted.new, counted_time=rfc3339(counted.counted), message=words[:1024]
    )
