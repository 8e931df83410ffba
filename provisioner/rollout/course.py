"""Which image a pool is on its way to, since when, and which one it has released. Pure.

An image is released once it has passed the canary: from then on servers boot it that have no Node to lose, and new
ones. A pool's first image is released at once, and so is its next one while nobody was ever in use with the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from provisioner.api import NodePool
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.rollout_status import (
    ReleasedImage,
    RolloutOutcome,
    RolloutRecord,
    RolloutStatus,
    RolloutStop,
)
from provisioner.rollout.plan import Plan, reaches_limit
from provisioner.rollout.standing import MemberFacts, RolloutTarget

KEPT_RECORDS: Final = 10


@dataclass(frozen=True, kw_only=True)
class Course:
    """released: what servers boot that have nothing to lose. rollout: the one under way, or the last one; None for a
    pool that never had another image. history: those that are over, the last one first."""

    released: ReleasedImage
    rollout: RolloutStatus | None
    history: tuple[RolloutRecord, ...]

    @property
    def is_under_way(self) -> bool:
        return self.rollout is not None and self.rollout.completed_time is None


def set_course(pool: NodePool, standings: Collection[MemberFacts], now: datetime) -> Course:
    """The course of the pool's imageRef: the one on record, or a new one that begins now.

    An image that a rollout of this pool has brought everywhere, or that it came from, has passed its stages before. A
    rollout that is complete is under way again while a server is to follow that could not before.
    """
    wanted, status, time = pool.spec.image_ref, pool.status, rfc3339(now)
    here = [s for s in standings if s.in_use and s.moves_from is None]
    in_use = Counter(s.server.status.image_ref for s in here if s.server.status.image_ref)
    released = status.released or _first_released(pool, in_use, time)
    if released.verified_time is None and in_use[released.image_ref]:
        released = replace(released, verified_time=time)
    if released.verified_time is None and status.rollout is None and released.image_ref != wanted:
        released = ReleasedImage(image_ref=wanted, time=time, verified_time=time if in_use[wanted] else None)
    rollout, history = status.rollout, status.history
    to_follow = [standing for standing in standings if standing.is_to_follow]
    if wanted != (rollout.image_ref if rollout is not None else released.image_ref):
        is_known = wanted in _known(released, rollout, history)
        if rollout is not None and rollout.completed_time is None and not follows_up(rollout, history):
            history = _recorded(history, rollout, standings, "Superseded", now)
        rollout = RolloutStatus(
            image_ref=wanted,
            previous_image_ref=released.image_ref,
            started_time=time,
            passed=stages_of(pool) if is_known else 0,
        )
    elif any(standing.moves_from is not None and standing.state == "Outdated" for standing in to_follow):
        rollout = _with_movers(pool, released, rollout, time)
    elif to_follow and rollout is not None and rollout.completed_time is not None:
        passed = max(rollout.passed, stages_of(pool))
        rollout = replace(rollout, completed_time=None, passed=passed)  # one was held, or broken, or came late
    return Course(released=released, rollout=rollout, history=history)


def _with_movers(pool: NodePool, released: ReleasedImage, rollout: RolloutStatus | None, time: str) -> RolloutStatus:
    """The rollout under way, which takes along who moves in; else one for them alone, with a canary only where nobody
    was ever in use with the image here."""
    if rollout is None:
        passed = stages_of(pool) if released.verified_time is not None else 0
        return RolloutStatus(image_ref=pool.spec.image_ref, started_time=time, moved_time=time, passed=passed)
    if rollout.completed_time is None:
        return rollout
    return replace(rollout, completed_time=None, moved_time=time, workloads=None)


def follows_up(rollout: RolloutStatus, history: Collection[RolloutRecord]) -> bool:
    """Whether it was complete before, or is for those alone who move in: its image is not on trial any more."""
    return rollout.moved_time is not None or any(_is_of(record, rollout) for record in history)


def _is_of(record: RolloutRecord, rollout: RolloutStatus) -> bool:
    return (record.image_ref, record.started_time) == (rollout.image_ref, rollout.started_time)


def stages_of(pool: NodePool) -> int:
    """How many stages a rollout has before all may follow."""
    return 1 + len(pool.spec.upgrade_strategy.waves)


def stop_at_failures(course: Course, pool: NodePool, failed: int, now: datetime) -> Course:
    """The course, stopped if too many servers have failed; going on if a person decided so since it stopped."""
    rollout, strategy = course.rollout, pool.spec.upgrade_strategy
    if rollout is None:
        return course
    stopped = rollout.stopped
    retried = parse_time(strategy.retried_time) if strategy.retried_time is not None else None
    if stopped is not None and retried is not None and retried > parse_time(stopped.time):
        stopped, rollout = None, replace(rollout, workloads=None)  # jobs are counted anew, too
    was_complete = rollout.moved_time is None and follows_up(rollout, course.history)
    # What broke since it was complete says nothing of the image; turns are held back by the plan.
    if stopped is None and reaches_limit(failed, strategy) and course.is_under_way and not was_complete:
        words = (
            f"{quantity(failed, 'server')} failed with Image '{rollout.image_ref}', and "
            f"spec.upgradeStrategy.maxFailures of NodePool '{pool.name}' is {strategy.max_failures}: look at them "
            f"(kubectl provision rollout status {pool.name}), then go back (kubectl provision rollout undo "
            f"{pool.name}), name a better image, or try them again (kubectl provision rollout resume {pool.name})"
        )
        stopped = RolloutStop(time=rfc3339(now), reason="Failures", message=words)
    return replace(course, rollout=replace(rollout, stopped=stopped))


def follow_plan(
    course: Course, pool: NodePool, standings: Collection[MemberFacts], found: Plan, now: datetime
) -> Course:
    """The course after a decision: stages that are over, the image released by the first of them, the completion."""
    rollout, released, history = course.rollout, course.released, course.history
    if rollout is None:
        return course
    passed = max(rollout.passed, found.stage.passed)
    if passed > 0 and released.image_ref != rollout.image_ref:
        is_in_use = any(s.state == "Updated" for s in standings)
        time = rfc3339(now)
        released = ReleasedImage(image_ref=rollout.image_ref, time=time, verified_time=time if is_in_use else None)
    rollout = replace(rollout, passed=passed)
    is_complete = _is_complete(standings, was_complete=follows_up(rollout, history))
    if rollout.completed_time is None and passed >= stages_of(pool) and is_complete:
        rollout = replace(rollout, completed_time=rfc3339(now), expected_time=None)
        if rollout.moved_time is None:  # else it was for those alone who moved in
            history = _recorded(history, rollout, standings, "Completed", now)
    return Course(released=released, rollout=rollout, history=history)


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a server boots unless a Maintenance says otherwise. image: None for whatever is released in that pool. pool:
    None for that of its spec."""

    image: str | None
    pool: str | None


def assign(standing: MemberFacts, course: Course, target: RolloutTarget, images: Collection[str]) -> Assignment:
    """What the server boots by itself from now on.

    It moves only to an image with which the server is in use, and to a pool that the server is in; but one that has
    nothing to lose is in another pool with its next boot. images: the Images that there are: what is gone for good
    nobody can boot.
    """
    server, status = standing.server, standing.server.status
    if server.spec.acceptance != "Accepted" or standing.state == "Absent":
        return Assignment(image=None, pool=target.pool if target.pool != server.spec.node_pool_ref else None)
    if standing.state == "Updated":
        return Assignment(image=target.name, pool=target.pool)
    if standing.moves_from is not None:
        return _assign_mover(standing, course, target, images)
    if status.assigned_node_pool_ref not in (None, target.pool):
        return _assign_arrived(standing, course, target, images)
    assigned = status.assigned_image_ref
    if assigned is not None and assigned not in images:
        assigned = None
    if assigned is None and standing.in_use:
        assigned = course.released.image_ref
    return Assignment(image=assigned, pool=target.pool)


def _assign_mover(standing: MemberFacts, course: Course, target: RolloutTarget, images: Collection[str]) -> Assignment:
    """Of one that is in another pool still: it stays there until its turn, unless it is out of use by itself."""
    status = standing.server.status
    if _comes_by_itself(standing, course, images):
        return Assignment(image=course.released.image_ref, pool=target.pool)
    if not standing.in_use and status.assigned_node_pool_ref == target.pool:
        return _kept(standing, images)  # sent back out of a pool with whose image it was never in use
    is_kept = status.assigned_node_pool_ref in (None, standing.moves_from)
    stays = status.assigned_image_ref if is_kept else status.image_ref
    return Assignment(image=stays if stays in images else None, pool=standing.moves_from)


def _assign_arrived(
    standing: MemberFacts, course: Course, target: RolloutTarget, images: Collection[str]
) -> Assignment:
    """Of one that was booted for this pool, while the assigned Image is still that of the pool before: the two change
    together. One that does not get in use here comes back to where it was."""
    running = standing.server.status.image_ref
    if standing.in_use:
        return Assignment(image=running if running in images else course.released.image_ref, pool=target.pool)
    if _comes_by_itself(standing, course, images):
        return Assignment(image=course.released.image_ref, pool=target.pool)
    return _kept(standing, images)


def _comes_by_itself(standing: MemberFacts, course: Course, images: Collection[str]) -> bool:
    """Whether it is out of use by itself, and its next boot may be for this pool: with an image that somebody was in
    use with here. A loss of power brings no server into one that has had no canary."""
    released = course.released
    is_proven = released.verified_time is not None and released.image_ref in images
    return is_proven and standing.state == "Down" and not standing.is_disturbed


def _kept(standing: MemberFacts, images: Collection[str]) -> Assignment:
    status = standing.server.status
    image = status.assigned_image_ref
    return Assignment(image=image if image in images else None, pool=status.assigned_node_pool_ref)


def _first_released(pool: NodePool, in_use: Counter[str], time: str) -> ReleasedImage:
    """Of a pool that has no record: what most of its servers run."""
    for name, _ in in_use.most_common(1):
        return ReleasedImage(image_ref=name, time=time, verified_time=time)
    return ReleasedImage(image_ref=pool.spec.image_ref, time=time)


def _known(
    released: ReleasedImage, rollout: RolloutStatus | None, history: Collection[RolloutRecord]
) -> frozenset[str]:
    """Images that need no canary any more."""
    known = {released.image_ref, *(record.image_ref for record in history if record.outcome == "Completed")}
    if rollout is not None and rollout.previous_image_ref is not None:
        known.add(rollout.previous_image_ref)
    return frozenset(known)


def _is_complete(standings: Collection[MemberFacts], *, was_complete: bool) -> bool:
    """Whether every server has the image that can have it now. Whom it leaves alone (`MemberFacts.excluded`), and what
    is out of use, also drained by a person, is no reason to wait; what a Maintenance boots is, and what failed, unless
    the rollout was complete before."""
    if any(s.is_to_follow or s.returns for s in standings):
        return False
    if not was_complete and any(s.state == "Failed" for s in standings):
        return False
    return not standings or any(s.state == "Updated" for s in standings)


def _recorded(
    history: tuple[RolloutRecord, ...],
    rollout: RolloutStatus,
    standings: Collection[MemberFacts],
    outcome: RolloutOutcome,
    now: datetime,
) -> tuple[RolloutRecord, ...]:
    """`history` with the rollout. What servers are counted as is by the image that is wanted now: those that run its
    image are counted by that."""
    updated = sum(s.server.status.image_ref == rollout.image_ref and s.in_use for s in standings)
    failures = (s.server.status.upgrade_failure for s in standings)
    record = RolloutRecord(
        image_ref=rollout.image_ref,
        previous_image_ref=rollout.previous_image_ref,
        started_time=rollout.started_time,
        ended_time=rfc3339(now),
        outcome=outcome,
        updated=updated,
        failed=sum(failure is not None and failure.image_ref == rollout.image_ref for failure in failures),
        message=rollout.message,
    )
    return (record, *(each for each in history if not _is_of(each, rollout)))[:KEPT_RECORDS]
