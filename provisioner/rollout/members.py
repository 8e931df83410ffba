"""From what is seen of a pool's servers to what its planner is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from provisioner.api.meta import parse_time
from provisioner.api.upgrade_strategy import UpgradeDeadline, UpgradeStrategy
from provisioner.jobs.selectors import Selector
from provisioner.jobs.work import Job, Work
from provisioner.rollout.fleet import Member, Occupancy
from provisioner.rollout.interrupting import may_be_ended_from
from provisioner.rollout.standing import Standing

RACK: Final = "rack"
NOT_KNOWN: Final = "what runs there is not known"


def key_of_job(job: Job) -> str:
    """`SlurmJob 4711`, `PodGroup team/training`."""
    return f"{job.kind} {job.name}"


def occupancy_of(
    work: Work, free: float, deadline: UpgradeDeadline | None, began: float, now: float
) -> Occupancy | None:
    """What runs on a server; None if nothing does. What could not be asked counts as a job of which nothing is known.

    free: share of the server on which nothing runs. began: when the rollout did.
    """
    if work.is_idle:
        return None
    jobs = work.jobs
    known = not work.unknown
    firsts = [job.began.timestamp() for job in jobs if job.began is not None]
    ends = [job.ends.timestamp() for job in jobs if job.ends is not None]
    return Occupancy(
        jobs=tuple(key_of_job(job) for job in jobs) or (NOT_KNOWN,),
        free=free if known else 0.0,
        first=min(firsts, default=None),
        ends=max(ends) if known and ends and len(ends) == len(jobs) else None,
        interruptible=_interruptible(jobs, deadline, began, now) if known else None,
    )


def _interruptible(jobs: Iterable[Job], deadline: UpgradeDeadline | None, began: float, now: float) -> float | None:
    """From when each of them may be ended; None if one never may."""
    moments: list[float] = []
    for job in jobs:
        job_began = job.began.timestamp() if job.began is not None else now
        moment = may_be_ended_from(deadline, began, job_began, job.partition, job.qos)
        if moment is None or job.do_not_disrupt:
            return None
        moments.append(moment)
    return max(moments, default=None)


def make_member(
    name: str,
    standing: Standing,
    runs: Occupancy | None,
    strategy: UpgradeStrategy,
    canaries: Selector | None,
) -> Member:
    """As the planner sees a server. One whose jobs were told of their end is on its way."""
    entry, labels = standing.entry, standing.server.metadata.labels
    state = "Updating" if standing.is_told else standing.state
    rack = standing.server.spec.rack_ref
    return Member(
        name=name,
        state=state,
        runs=runs if state == "Outdated" else None,
        since=standing.since,
        closed=entry is not None and entry.turn in ("Closed", "Granted"),
        domains=tuple(rack if cap.key == RACK else labels.get(cap.key) for cap in strategy.domains),
        excluded=standing.excluded,
        has_image=standing.has_image,
        canary=canaries is None or canaries.matches(labels),
    )


def order_of(standing: Standing) -> tuple[bool, str, str]:
    """Where a server comes, nothing else deciding: those whose turn has come keep it, then rack by rack."""
    entry = standing.entry
    granted = entry is not None and entry.turn == "Granted"
    return not granted, standing.server.spec.rack_ref or "", standing.server.name


def retried_moment(strategy: UpgradeStrategy) -> float | None:
    """Failures before then are forgotten."""
    return parse_time(strategy.retried_time).timestamp() if strategy.retried_time is not None else None
