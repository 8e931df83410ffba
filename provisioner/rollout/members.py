"""From what is seen of a pool's servers to what its planner is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final

from provisioner.api import Image, NodePool
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.pools.upgrade_strategy import UpgradeDeadline, UpgradeStrategy
from provisioner.cluster.source import spec_of
from provisioner.jobs.model.work import Job, Work
from provisioner.jobs.selectors import Selector, parse_selector
from provisioner.rollout.borrowed import Lending
from provisioner.rollout.course import Course, stages_of
from provisioner.rollout.fleet import Member, Occupancy, PoolSnapshot
from provisioner.rollout.interrupting import may_be_ended_from
from provisioner.rollout.standing import MemberFacts
from provisioner.rules.bootability import find_distrusted

_Order = tuple[bool, str, str]

RACK: Final = "rack"
NOT_KNOWN: Final = "what runs there is not known"


def is_member(server: Mapping[str, Any], pool: str, lending: Lending) -> bool:
    """Whether a Server, as JSON, counts: accepted, to be in that pool now, to be on."""
    spec = spec_of(server)
    is_in = lending.wanted_pool(server) == pool and spec.get("acceptance") == "Accepted"
    return is_in and spec.get("powerState", "On") == "On" and not server["metadata"].get("deletionTimestamp")


def began_at(course: Course, now: datetime) -> datetime:
    """When the rollout began, or servers began to move in after it was over; now, if none has."""
    rollout = course.rollout
    return parse_time(rollout.moved_time or rollout.started_time) if rollout is not None else now


def make_fleet(
    pool: NodePool,
    course: Course,
    standings: Mapping[str, MemberFacts],
    runs: Mapping[str, Occupancy | None],
    widths: Mapping[str, int],
    image: Image | None,
    now: datetime,
    *,
    gate: str | None = None,
    members: Members | None = None,
) -> PoolSnapshot:
    """What the planner is told. runs: of each server that is Outdated, and of those that are Updated where it is known;
    widths: on how many servers a job runs, of those that span several. image: the one that the pool wants. gate: why no
    stage is over now, by the jobs that have ended. members: as they were made before, to be kept. Raises: Refused for a
    selector that cannot be read."""
    return PoolSnapshot(
        members=(members or Members()).of(standings, runs, pool.spec.upgrade_strategy),
        began=began_at(course, now).timestamp(),
        free=sum(s.state == "Updated" and runs.get(name, s) is None for name, s in standings.items()),
        passed=course.rollout.passed if course.is_under_way and course.rollout is not None else stages_of(pool),
        widths=widths,
        gate=gate,
        halted=halted_by(pool, course, image),
        has_slurm=pool.spec.jobs.slurm is not None,
        warning=timedelta(seconds=pool.spec.maintenance.warning_seconds),
    )


class Members:
    """The members of one pool, each made anew only when what is known of its server is another object than before."""

    def __init__(self) -> None:
        self._strategy: UpgradeStrategy | None = None
        self._made: dict[str, tuple[MemberFacts, Occupancy | None, _Order, Member]] = {}

    def of(
        self, standings: Mapping[str, MemberFacts], runs: Mapping[str, Occupancy | None], strategy: UpgradeStrategy
    ) -> list[Member]:
        """In the order in which they are updated where nothing else decides. Raises: Refused."""
        before = self._made if strategy == self._strategy else {}
        canaries = parse_selector(strategy.canary.selector) if strategy.canary.selector else None
        made = {}
        for name, standing in standings.items():
            known, occupancy = before.get(name), runs.get(name)
            if known is None or known[0] is not standing or known[1] is not occupancy:
                member = make_member(name, standing, occupancy, strategy, canaries)
                known = standing, occupancy, order_of(standing), member
            made[name] = known
        self._strategy, self._made = strategy, made
        return [member for *_, member in sorted(made.values(), key=itemgetter(2))]


def halted_by(pool: NodePool, course: Course, image: Image | None) -> str | None:
    """Why nobody shall boot the image; None if nothing stands in the way."""
    if course.rollout is not None and course.rollout.stopped is not None:
        return course.rollout.stopped.message
    if image is None:
        return f"Image '{pool.spec.image_ref}' does not exist: publish it, or correct spec.imageRef of the NodePool"
    distrusted = find_distrusted(image)
    if distrusted is not None:
        return distrusted.words
    available = find_condition(image.status.conditions, "Available")
    if available is not None and available.status == "False":
        return f"Image '{image.name}' cannot be booted: {available.message}; publish it again, or name another one"
    return None


def key_of_job(job: Job) -> str:
    """`SlurmJob 4711`, `PodGroup team/training`."""
    return f"{job.kind} {job.name}"


def widths_of(work: Work) -> dict[str, int]:
    """On how many servers the jobs run that are on this one and on others."""
    return {key_of_job(job): len(job.servers) for job in work.jobs if len(job.servers) > 1}


def unknown_occupancy(why: str) -> Occupancy:
    """Of a server of which nobody can know what runs there: it is waited for."""
    return Occupancy(jobs=(f"{NOT_KNOWN}: {why}",), free=0.0, first=None, ends=None, interruptible=None)


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
        begun_ends=_begun_ends(jobs) if known else None,
        interruptible=_interruptible(jobs, deadline, began, now) if known else None,
    )


def _begun_ends(jobs: Iterable[Job]) -> float | None:
    """By when all have ended but those that Slurm only plans to start there; None if that is not known of one."""
    moments = [job.ends for job in jobs if job.kind != "SlurmJob" or job.began is not None]
    ends = [moment.timestamp() for moment in moments if moment is not None]
    return max(ends, default=0.0) if len(ends) == len(moments) else None


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
    standing: MemberFacts,
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
        reserved=parse_time(entry.closing_time).timestamp() if entry is not None and entry.closing_time else None,
        domains=tuple(rack if cap.key == RACK else labels.get(cap.key) for cap in strategy.domains),
        excluded=standing.excluded,
        has_image=standing.has_image,
        canary=canaries is None or canaries.matches(labels),
    )


def order_of(standing: MemberFacts) -> _Order:
    """Where a server comes, nothing else deciding: those whose turn has come keep it, then rack by rack."""
    entry = standing.entry
    granted = entry is not None and entry.turn == "Granted"
    return not granted, standing.server.spec.rack_ref or "", standing.server.name


def retried_moment(strategy: UpgradeStrategy) -> float | None:
    """Failures before then are forgotten."""
    return parse_time(strategy.retried_time).timestamp() if strategy.retried_time is not None else None
