"""What is said of a pool."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.pools.rollout_status import ReleasedImage, RolloutStatus
from provisioner.rollout.course import Course
from provisioner.rollout.fleet import Member, PoolSnapshot
from provisioner.rollout.plan import plan
from provisioner.rollout.pool_status import pool_status
from provisioner.rollout.wait import MemberWait
from tests.boot.objects import pool
from tests.rollout.fleets import NOON, fleet, strategy, updated


def said_of(members: PoolSnapshot, *, completed_time: str | None = None) -> dict[str, Any]:
    time = rfc3339(NOON)
    rollout = RolloutStatus(image_ref="new", started_time=time, completed_time=completed_time)
    course = Course(released=ReleasedImage(image_ref="new", time=time), rollout=rollout, history=())
    found = plan(members, strategy(max_failures=2), NOON)
    return pool_status(pool("gpu", image_ref="new"), course, [], found, None, NOON)


def test_a_rollout_whose_last_server_is_on_its_way_expects_its_end() -> None:
    said = said_of(fleet(updated("a"), Member(name="b", state="Updating")))
    assert said["rollout"]["expectedTime"] == rfc3339(NOON + timedelta(minutes=10))


def test_a_rollout_that_waits_for_a_person_alone_expects_no_end() -> None:
    """It would say the time of now, anew every five minutes."""
    for left in ({"state": "Failed"}, {"state": "Outdated", "excluded": MemberWait("Held", "by alice")}):
        assert "expectedTime" not in said_of(fleet(updated("a"), Member(name="b", **left)))["rollout"], left


def test_a_rollout_that_is_complete_expects_nothing_whoever_is_broken_since() -> None:
    said = said_of(fleet(updated("a"), Member(name="b", state="Down")), completed_time=rfc3339(NOON))
    assert "expectedTime" not in said["rollout"]
