"""What the rollout says of a pool: counts, where it is, what it waits for, in its NodePool's status. Pure."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from provisioner.api import NodePool
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of
from provisioner.api.machinery.meta import ConditionStatus, parse_time, rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.rollout_status import RolloutBlocker, RolloutStatus, WaitCount
from provisioner.rollout.course import Course
from provisioner.rollout.plan import Plan
from provisioner.rollout.standing import MemberFacts
from provisioner.rollout.wait import but_for

MAX_BLOCKERS: Final = 16
EXPECTED_STEP_SECONDS: Final = 300
"""An expectation that changes by less is not said anew."""
_MAX_WORDS: Final = 1000


def pool_status(
    pool: NodePool,
    course: Course,
    standings: Collection[MemberFacts],
    found: Plan | None,
    trouble: str | None,
    now: datetime,
) -> dict[str, Any]:
    """The status, for a server-side apply. found: None where nothing was planned, for the reason `trouble`."""
    counts = Counter(standing.state for standing in standings)
    left_alone = sum(standing.excluded is not None for standing in standings)
    numbers = {
        "desired": len(standings),
        "updated": counts["Updated"],
        "updating": counts["Updating"],
        "waiting": counts["Outdated"] - left_alone,
        "leftAlone": left_alone,
        "failed": counts["Failed"],
        "unavailable": sum(not standing.in_use for standing in standings),
    }
    rollout = course.rollout
    if rollout is not None:
        rollout = _described(rollout, found, trouble)
    is_over = not any(standing.is_to_follow for standing in standings) if rollout is None else not course.is_under_way
    conditions = (
        condition_of(pool, "Ready", *_ready(numbers, pool.spec.image_ref), now),
        condition_of(pool, "Progressing", *_progressing(course, found, trouble, is_over=is_over), now),
        condition_of(pool, "Paused", *_paused(course.rollout, found), now),
        condition_of(pool, "Degraded", *_degraded(counts["Failed"], pool.spec.image_ref), now),
    )
    status: dict[str, Any] = {
        **numbers,
        "released": to_json(course.released),
        "rollout": to_json(rollout) if rollout is not None else None,
        "history": [to_json(record) for record in course.history] or None,
        "conditions": [to_json(condition) for condition in conditions],
    }
    return {key: value for key, value in status.items() if value is not None}


def _described(rollout: RolloutStatus, found: Plan | None, trouble: str | None) -> RolloutStatus:
    if found is None:
        words = f"complete since {rollout.completed_time}" if rollout.completed_time is not None else trouble or ""
        return replace(rollout, message=words[:_MAX_WORDS], expected_time=None)
    return replace(
        rollout,
        stage=found.stage.name,
        message=_words(rollout, found)[:_MAX_WORDS],
        expected_time=_expected(rollout, found),
        waits=tuple(WaitCount(reason=reason, count=count) for reason, count in sorted(found.wait_counts.items())),
        blockers=tuple(_blockers(found)),
    )


def _words(rollout: RolloutStatus | None, found: Plan) -> str:
    if rollout is not None and rollout.completed_time is not None:
        return but_for(f"complete since {rollout.completed_time}", found.held)
    if rollout is not None and rollout.stopped is not None:
        return f"stopped: {rollout.stopped.message}"
    if found.stopped is not None:
        return found.stopped.words
    working = len(found.working)
    waiting = quantity(working, "server waits for its jobs", "servers wait for their jobs")
    moves = "servers of other NodePools move in; " if rollout is not None and rollout.moved_time is not None else ""
    return f"{moves}{found.stage.words}" + (f"; {waiting}" if working else "")


def _expected(rollout: RolloutStatus, found: Plan) -> str | None:
    if found.expected is None:
        return None
    if rollout.expected_time is not None:
        before = parse_time(rollout.expected_time)
        if abs((found.expected - before).total_seconds()) < EXPECTED_STEP_SECONDS:
            return rollout.expected_time
    return rfc3339(found.expected)


def _blockers(found: Plan) -> Iterable[RolloutBlocker]:
    counts: Counter[str] = Counter()
    ends: dict[str, float] = {}
    for member in found.working:
        for job in member.runs.jobs if member.runs is not None else ():
            counts[job] += 1
            if member.runs is not None and member.runs.ends is not None and len(member.runs.jobs) == 1:
                ends[job] = member.runs.ends
    for job, count in heapq.nsmallest(MAX_BLOCKERS, counts.items(), key=lambda each: (-each[1], each[0])):
        end = rfc3339(datetime.fromtimestamp(ends[job], UTC)) if job in ends else None
        yield RolloutBlocker(job=job[:512], servers=count, expected_time=end)


def _ready(numbers: Mapping[str, int], image: str) -> tuple[ConditionStatus, str, str]:
    own, unavailable, updated = numbers["desired"], numbers["unavailable"], numbers["updated"]
    message = f"{own - unavailable} of {quantity(own, 'server')} Ready, {updated} with image {image}"
    if not own:
        return "True", "NoServers", message
    if unavailable:
        return "False", "ServersNotReady", message
    return ("True", "ServersReady", message) if updated == own else ("False", "ImageOutdated", message)


def _progressing(
    course: Course, found: Plan | None, trouble: str | None, *, is_over: bool
) -> tuple[ConditionStatus, str, str]:
    """is_over: no server is to follow any more."""
    rollout = course.rollout
    if trouble is not None:
        return "False", "Unreadable", trouble[:_MAX_WORDS]
    if found is None or is_over:
        words = f"all servers that can have it have Image '{course.released.image_ref}'"
        return "False", "Complete", but_for(words, found.held if found is not None else {})[:_MAX_WORDS]
    if rollout is not None and rollout.stopped is not None:
        return "False", "Stopped", _words(rollout, found)[:_MAX_WORDS]
    if found.stopped is not None:
        return "False", found.stopped.reason, _words(rollout, found)[:_MAX_WORDS]
    return "True", found.stage.name, _words(rollout, found)[:_MAX_WORDS]


def _paused(rollout: RolloutStatus | None, found: Plan | None) -> tuple[ConditionStatus, str, str]:
    if rollout is not None and rollout.stopped is not None:
        return "True", rollout.stopped.reason, rollout.stopped.message
    if found is not None and found.stopped is not None and found.stopped.reason == "Paused":
        return "True", "Requested", found.stopped.words
    return "False", "NotPaused", "nobody has paused the rollout"


def _degraded(failed: int, image: str) -> tuple[ConditionStatus, str, str]:
    if not failed:
        return "False", "NoFailures", "no server failed with the image"
    words = f"{quantity(failed, 'server')} failed with Image '{image}'; see status.upgradeFailure"
    return "True", "ServersFailed", words
