"""What a rollout keeps count of, when it stops for that, and when no stage is over yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from provisioner.api import NodePool
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.pools.rollout_status import JobTally, RolloutStatus, RolloutStop
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy, WorkloadGate
from provisioner.rollout.gate import RECOUNT_BEFORE, counted_before, new_since, weigh
from provisioner.rollout.workloads.tally import Tallied
from tests.boot import objects
from tests.boot.objects import at
from tests.rollout.pools import NEW, OLD, stands

MOMENT = parse_time(at(7200))
UNDER_WAY = RolloutStatus(image_ref=NEW, previous_image_ref=OLD, started_time=at(0))


def pool(*, retried: str | None = None, **gate: Any) -> NodePool:
    strategy = UpgradeStrategy(retried_time=retried, workloads=WorkloadGate(**gate))
    return objects.pool(image_ref=NEW, upgrade_strategy=strategy)


def counted(old: tuple[int, int], new: tuple[int, int], moment: datetime = MOMENT) -> Tallied:
    """On each image: how many jobs have failed, of how many."""
    tallies = [JobTally(failed=failed, ended=ended) for failed, ended in (old, new)]
    return Tallied(old=tallies[0], new=tallies[1], counted=moment)


def recorded(found: Tallied, rollout: RolloutStatus = UNDER_WAY) -> RolloutStatus:
    return weigh(rollout, pool(), found, (), MOMENT)[0]


def test_jobs_are_counted_from_the_begin_or_from_a_persons_decision_and_then_from_the_record() -> None:
    assert counted_before(UNDER_WAY, pool()) == Tallied(counted=parse_time(at(0)))
    assert counted_before(UNDER_WAY, pool(retried=at(60))) == Tallied(counted=parse_time(at(60)))
    found = counted((1, 20), (0, 3))
    assert counted_before(recorded(found), pool(retried=at(60))) == found


def test_a_server_counts_as_new_once_it_was_ready_with_the_new_image() -> None:
    standings = {
        "new": stands(NEW, status={"ready_time": at(100)}),
        "broken": stands(NEW, ready="False", status={"ready_time": at(200)}),
        "never-ready": stands(NEW, status={"ready_time": None}),
        "old": stands(OLD, status={"ready_time": at(300)}),
    }
    assert new_since(standings) == {"new": parse_time(at(100)), "broken": parse_time(at(200))}


def test_it_stops_where_too_many_jobs_fail_and_keeps_for_what_it_was_stopped_before() -> None:
    bad = counted((0, 40), (12, 12))
    stopped = recorded(bad).stopped
    assert stopped is not None
    assert (stopped.reason, stopped.time) == ("Workloads", rfc3339(MOMENT))
    assert "12 of 12 jobs" in stopped.message
    assert "kubectl provision rollout undo gpu" in stopped.message
    before = RolloutStop(time=at(60), reason="Failures", message="two servers failed")
    assert recorded(bad, replace(UNDER_WAY, stopped=before)).stopped == before


def test_no_stage_is_over_before_so_many_jobs_have_ended_on_the_new_image() -> None:
    rollout, why = weigh(UNDER_WAY, pool(minimum_jobs=5), counted((0, 40), (0, 3)), (), MOMENT)
    assert why is not None
    assert "2 more must end on the new image" in why
    assert rollout.stopped is None
    assert weigh(UNDER_WAY, pool(minimum_jobs=5), counted((0, 40), (0, 5)), (), MOMENT)[1] is None


def test_what_is_on_record_stays_until_a_job_has_ended_or_half_a_day_is_over() -> None:
    assert recorded(counted((0, 0), (0, 0))).workloads is None
    first = recorded(counted((1, 20), (0, 3)))
    assert first.workloads is not None
    soon, late = MOMENT + timedelta(hours=1), MOMENT + RECOUNT_BEFORE
    assert recorded(counted((1, 20), (0, 3), soon), first) == first
    again = recorded(counted((1, 20), (0, 3), late), first).workloads
    assert again == replace(first.workloads, counted_time=rfc3339(late))
    more = recorded(counted((1, 20), (0, 4), soon), first).workloads
    assert more is not None
    assert (more.new.ended, more.counted_time) == (4, rfc3339(soon))
