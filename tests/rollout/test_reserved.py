"""Stragglers on which Slurm may still start what ends in time: which, until when, and what is asked of the executor."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api import NodePool
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.pools.pool_settings import JobSettings, SlurmJobs
from provisioner.api.pools.upgrade_strategy import Canary, Stragglers, UpgradeStrategy
from provisioner.cluster.resources import of
from provisioner.jobs.model.work import Job, Work
from provisioner.rollout.course import set_course
from provisioner.rollout.fleet import Member, Occupancy, PoolSnapshot
from provisioner.rollout.members import make_fleet, make_member, occupancy_of
from provisioner.rollout.plan import Plan, plan
from provisioner.rollout.requests import Asker, find_acts
from tests.boot import objects
from tests.maintenance.chaos import invariants
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.world import NEW, World
from tests.maintenance.chaos.world import Fleet as Servers
from tests.rollout.fleets import NOON, after, busy, fleet, strategy
from tests.rollout.pools import TARGET, asked, entry, stands

ALL = Stragglers(after_seconds=0, max_closed="100%")


def closes(*members: Member, now: datetime = NOON, **changes: Any) -> Plan:
    """A pool of Slurm whose stragglers are all closed."""
    return plan(fleet(*members, **{"has_slurm": True, **changes}), strategy(stragglers=ALL), now)


def part(name: str, *jobs: str, until: float | None, free: float = 0.5, reserved: float | None = None) -> Member:
    """Which jobs fill in part until so many hours after noon; and the moment that was named before."""
    found = busy(name, *(jobs or ("job-1", "job-2")), free=free, closed=reserved is not None)
    runs = replace(found.runs or Occupancy(jobs=()), begun_ends=None if until is None else after(until))
    return replace(found, runs=runs, reserved=None if reserved is None else after(reserved))


def hours(found: Plan, name: str = "a") -> float | None:
    moment = found.reserved.get(name)
    return None if moment is None else (moment - NOON.timestamp()) / 3600


# Until when


@pytest.mark.parametrize(
    ("sentence", "member", "until"),
    [
        ("a part of it is free, and it is known when the rest is", part("a", until=3), 3),
        ("of some job it is not known when it ends", part("a", until=None), None),
        ("jobs fill it, so that none could start now", part("a", until=3, free=0.0), None),
        ("its jobs end so soon that hardly any could start", part("a", until=0.2), None),
        ("its jobs may run for years", part("a", until=20_000), None),
        ("its jobs should have ended", part("a", until=-1), None),
        ("a moment that was named stays, though jobs fill it since", part("a", until=3, free=0.0, reserved=3), 3),
        ("though an end is not known for a while", part("a", until=None, reserved=3), 3),
        ("though the end moves a little", part("a", until=3.2, reserved=3), 3),
        ("or a little to the other side", part("a", until=2.8, reserved=3), 3),
        ("it moves with a job that ended long before its time", part("a", until=1, reserved=3), 1),
        ("though what was started there since fills it", part("a", until=1, free=0.0, reserved=3), 1),
        ("it moves with a job that may run longer", part("a", until=9, reserved=3), 9),
        ("nothing runs there any more that has begun", part("a", until=-9e5, reserved=3), None),
        ("one that has passed is none", part("a", until=None, reserved=-1), None),
        ("but for jobs that may run long past it", part("a", until=3, reserved=-1), 3),
        ("a single job fills it", part("a", "job-1", until=3, free=0.0), None),
        ("a single job is left of those that were there", part("a", "job-1", until=3, free=0.0, reserved=3), None),
        ("a single job leaves a part free", part("a", "job-1", until=3), 3),
    ],
)
def test_a_straggler_is_reserved(sentence: str, member: Member, until: float | None) -> None:
    found = closes(member)
    assert found.closed == {"a"}
    assert hours(found) == until, sentence


def test_a_moment_is_of_whole_minutes_and_not_before_the_end() -> None:
    odd = part("a", until=None)
    runs = replace(odd.runs or Occupancy(jobs=()), begun_ends=after(3) + 0.25)
    assert hours(closes(replace(odd, runs=runs))) == 3 + 1 / 60


def test_what_is_planned_with_a_moment_named_is_planned_again() -> None:
    first = closes(part("a", until=3.01))
    again = closes(replace(part("a", until=3.01), closed=True, reserved=first.reserved["a"]))
    assert again.reserved == first.reserved


def test_the_plan_changes_by_itself_when_the_first_moment_has_come() -> None:
    found = closes(part("a", until=3), part("b", "job-3", until=2))
    assert found.again == NOON + timedelta(hours=2)


def test_without_slurm_and_without_being_closed_none_is_reserved() -> None:
    assert closes(part("a", until=3), has_slurm=False).reserved == {}
    open_ = plan(fleet(part("a", until=3), has_slurm=True), strategy(), NOON)
    assert (open_.closed, open_.reserved) == (frozenset(), {})


def test_nothing_is_reserved_of_what_is_not_closed() -> None:
    found = closes(part("a", until=3), busy("full", "job-9"), part("unknown", "job-8", until=None))
    assert found.closed == {"a", "full", "unknown"}
    assert set(found.reserved) == {"a"}


# What is known of the jobs


def job(name: str, ends: float | None, *, began: float | None = -1, kind: Any = "SlurmJob") -> Job:
    def moment(hours: float | None) -> datetime | None:
        return None if hours is None else datetime.fromtimestamp(after(hours), UTC)

    return Job(kind=kind, name=name, servers=("a",), message="", began=moment(began), ends=moment(ends))


@pytest.mark.parametrize(
    ("sentence", "jobs", "unknown", "until"),
    [
        ("the last of them counts", [job("1", 2), job("2", 3)], (), 3),
        ("one without a limit leaves it unknown", [job("1", 2), job("2", None)], (), None),
        ("one that Slurm only plans does not: it starts elsewhere", [job("1", 2), job("2", None, began=None)], (), 2),
        ("a pod that is yet to start does", [job("1", 2), job("p", None, began=None, kind="Pod")], (), None),
        ("what could not be asked leaves it unknown", [job("1", 2)], ("slurmrestd does not answer",), None),
    ],
)
def test_until_when_jobs_run(sentence: str, jobs: list[Job], unknown: tuple[str, ...], until: float | None) -> None:
    runs = occupancy_of(Work(jobs=tuple(jobs), unknown=unknown), 0.5, None, after(0), after(0))
    assert runs is not None
    assert runs.begun_ends == (None if until is None else after(until)), sentence


def test_where_only_planned_jobs_are_it_is_closed_at_once_and_they_start_elsewhere() -> None:
    runs = occupancy_of(Work(jobs=(job("1", None, began=None),)), 1.0, None, after(0), after(0))
    found = closes(Member(name="a", state="Outdated", runs=runs, closed=True, reserved=after(3)))
    assert (found.closed, found.reserved) == ({"a"}, {})


# What is asked of the executor


def acts(found: Plan, *there: Any) -> list[Any]:
    standings = {"r01-u01": stands("old", *there)}
    asker = Asker(target=TARGET, user="rollout")
    return [act.entry for act in find_acts(standings, found, asker, 0, NOON)]


def test_the_entry_has_the_moment_and_says_it() -> None:
    found = closes(replace(part("a", until=3), name="r01-u01"))
    (wanted,) = acts(found)
    assert (wanted.turn, wanted.policy, wanted.deadline_time) == ("Closed", "WhenIdle", None)
    assert wanted.closing_time == rfc3339(NOON + timedelta(hours=3))
    assert "takes no new job that may run past 2026-11-02T15:00:00Z" in wanted.message
    assert acts(found, asked(wanted)) == [], "asked again, nothing is written"


def test_a_moment_that_moves_and_one_that_is_gone_are_written() -> None:
    (wanted,) = acts(closes(replace(part("a", until=3), name="r01-u01")))
    (moved,) = acts(closes(replace(part("a", until=9), name="r01-u01")), asked(wanted))
    assert moved.closing_time == rfc3339(NOON + timedelta(hours=9))
    (drained,) = acts(closes(replace(part("a", until=None), name="r01-u01")), asked(wanted))
    assert (drained.turn, drained.closing_time) == ("Closed", None)
    assert "takes no new job, for" in drained.message


def test_the_moment_is_read_back_from_the_entry() -> None:
    named = entry("Closed", closing_time=rfc3339(NOON + timedelta(hours=3)))
    member = make_member("a", stands("old", asked(named)), None, UpgradeStrategy(), None)
    assert (member.closed, member.reserved) == (True, after(3))
    assert make_member("a", stands("old", asked(entry("Closed"))), None, UpgradeStrategy(), None).reserved is None


# From its begin to its end


def begin(*, reserves: bool = True) -> World:
    """Two servers, each with a short and a long job that leave a part of it free; both are stragglers."""
    stragglers = Stragglers(after_seconds=600, max_closed="100%")
    rollout = UpgradeStrategy(
        max_parallel="100%", max_unavailable="100%", canary=Canary(count=0), stragglers=stragglers
    )
    world = World(Servers(servers=2, budget=2, reserves=reserves, rollout=rollout), "stragglers")
    world.start_controller()
    world.run(60)
    for number, name in enumerate(world.names):
        for minutes in (30, 120):
            ends = world.clock.in_seconds(minutes * 60)
            key = f"471{number}-{minutes}"
            world.start_job(FakeJob(key, (name,), "SlurmJob", ends, share=0.25, has_limit=True, began=world.clock.now))
    world.pool_image(NEW)
    world.run(1200)
    return world


def comes(world: World, name: str, minutes: float, share: float = 0.5) -> bool:
    ends = world.clock.in_seconds(minutes * 60)
    return world.start_job(FakeJob(name, (world.names[0],), "SlurmJob", ends, share=share, has_limit=True))


def test_slurm_fills_a_straggler_until_its_longest_job_ends_and_no_further() -> None:
    world = begin()
    assert {node for node, _ in world.workloads.reservations.values()} == set(world.names)
    assert world.workloads.drains == {}
    assert not comes(world, "too long", 110)
    assert comes(world, "short", 60)
    world.run(1800)
    assert comes(world, "shorter", 30, share=0.25)
    world.run(3 * 3600)
    assert [world.machines[name].running_image for name in world.names] == [world.images[NEW]] * 2
    assert world.workloads.interrupted == []
    assert (world.workloads.reservations, world.workloads.drains) == ({}, {})
    invariants.check_end(world)
    world.story.judge()


def test_one_whose_long_job_ends_early_goes_early() -> None:
    world = begin()
    assert comes(world, "short", 30)
    for name in list(world.workloads.jobs):
        if name.endswith("-120"):
            world.workloads.end(name)
    world.run(45 * 60)
    assert [world.machines[name].running_image for name in world.names] == [world.images[NEW]] * 2
    assert world.workloads.reservations == {}


def test_a_rollout_that_is_paused_takes_its_reservations_back() -> None:
    world = begin()
    world.cluster.patch(
        of(NodePool), world.pool_name, {"spec": {"upgradeStrategy": {"paused": True}}}, manager="kubectl"
    )
    world.run(60)
    assert (world.workloads.reservations, world.workloads.drains) == ({}, {})
    assert comes(world, "long", 600)


def test_with_a_slurm_that_cannot_reserve_it_is_drained_as_ever() -> None:
    world = begin(reserves=False)
    assert set(world.workloads.drains) == set(world.names)
    assert not comes(world, "short", 5)
    world.run(3 * 3600)
    assert [world.machines[name].running_image for name in world.names] == [world.images[NEW]] * 2
    invariants.check_end(world)
    world.story.judge()


def test_a_pool_whose_jobs_slurm_does_not_run_names_no_moments() -> None:
    slurm = JobSettings(slurm=SlurmJobs(url="http://slurm", credentials_name="slurm"))
    assert made(objects.pool(jobs=slurm)).has_slurm
    assert not made(objects.pool()).has_slurm


def made(pool: NodePool) -> PoolSnapshot:
    return make_fleet(pool, set_course(pool, (), NOON), {}, {}, {}, None, NOON)
