"""What is said of a pool."""

from __future__ import annotations

from provisioner.api.meta import rfc3339
from provisioner.api.rollout_status import ReleasedImage, RolloutStatus
from provisioner.rollout.course import Course
from provisioner.rollout.fleet import Member
from provisioner.rollout.plan import plan
from provisioner.rollout.pool_status import pool_status
from tests.boot.objects import pool
from tests.rollout.fleets import NOON, fleet, strategy, updated


def test_a_rollout_that_is_complete_expects_nothing_whoever_is_broken_since() -> None:
    found = plan(fleet(updated("a"), Member(name="b", state="Down")), strategy(), NOON)
    assert found.expected is not None, "else it would say the time of now, anew every five minutes"
    time = rfc3339(NOON)
    rollout = RolloutStatus(image_ref="new", started_time=time, completed_time=time)
    course = Course(released=ReleasedImage(image_ref="new", time=time), rollout=rollout, history=())
    said = pool_status(pool("gpu", image_ref="new"), course, [], found, None, NOON)
    assert "expectedTime" not in said["rollout"]
