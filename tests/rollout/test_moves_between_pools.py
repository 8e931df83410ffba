"""Servers that move between NodePools as their jobs end: the real controllers on one clock, over simulated machines."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.pools.pool_settings import MaintenanceSettings
from provisioner.api.pools.upgrade_strategy import Canary, UpgradeStrategy
from provisioner.cluster.resources import NODES, of
from tests.boot.objects import pool
from tests.maintenance.chaos import people, replay
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.injections import Injection, Strike
from tests.maintenance.chaos.replay import LONG
from tests.maintenance.chaos.world import NEW, OLD, Fleet, World
from tests.rollout.chaos.troubles import TROUBLES

pytestmark = pytest.mark.slow

HOUR = 3600.0
STRATEGY = UpgradeStrategy(max_parallel="100%", max_unavailable="100%", canary=Canary(count=1, soak_seconds=600))


def begin(servers: int = 2, *, image: str = OLD, **spec: Any) -> World:
    """A pool with Slurm, whose servers run OLD, and beside it the pool `pods`, without Slurm and without servers."""
    world = World(Fleet(servers=servers, budget=10, rollout=STRATEGY), "moves")
    settings = MaintenanceSettings(max_unavailable=10, kexec_models=("*",))
    other = pool("pods", image_ref=world.images[image], upgrade_strategy=STRATEGY, maintenance=settings, **spec)
    world.cluster.apply(encode(other), manager="kubectl")
    world.start_controller()
    world.run(60)
    return world


def move(world: World, name: str, to: str) -> None:
    world.cluster.patch(of(Server), name, {"spec": {"nodePoolRef": to}}, manager="kubectl")


def is_in(world: World, name: str) -> tuple[str | None, str | None]:
    """The pool of what runs there, and by the label of its Node."""
    labels = world.cluster.get(NODES, name)["metadata"].get("labels") or {}
    return world.cluster.read(Server, name).status.node_pool_ref, labels.get("provisioner.dev/pool")


def slurm_job(world: World, name: str, hours: float) -> None:
    job = FakeJob("4711", (name,), kind="SlurmJob", ends_at=world.clock.in_seconds(hours * HOUR))
    assert world.start_job(job)


def moved(**spec: Any) -> tuple[World, str]:
    """A fleet whose one server has moved to the pool `pods`, which is made by `spec`; and that server."""
    world = begin(servers=1, **spec)
    (name,) = world.names
    move(world, name, "pods")
    world.run(HOUR)
    assert is_in(world, name) == ("pods", "pods")
    return world, name


def rollout(world: World, name: str = "pods") -> Any:
    return world.cluster.read(NodePool, name).status.rollout


def test_a_server_that_runs_a_job_moves_when_it_has_ended_and_the_idle_one_at_once() -> None:
    world = begin()
    busy, idle = world.names
    slurm_job(world, busy, 3)
    move(world, busy, "pods")
    move(world, idle, "pods")
    world.run(HOUR)
    assert is_in(world, idle) == ("pods", "pods")
    assert is_in(world, busy)[0] in (None, world.pool_name)
    assert world.machines[busy].boots == 0
    assert [blocker.job for blocker in rollout(world).blockers] == ["SlurmJob 4711"]
    world.run(3 * HOUR)
    assert is_in(world, busy) == ("pods", "pods")
    assert world.workloads.interrupted == []
    assert [world.machines[name].boots for name in (busy, idle)] == [1, 1]
    assert rollout(world).completed_time is not None
    world.story.judge()


def test_slurm_gives_a_server_that_has_left_no_job_and_gets_it_back_when_it_returns() -> None:
    world, name = moved()
    assert name in world.workloads.drains
    left = world.cluster.read(Maintenance, f"{name}-1")
    assert left.status.phase == "Completed"
    (said,) = [each for each in left.status.conditions if each.type == "SlurmDrained"]
    assert (said.status, said.reason) == ("True", "Moved")

    move(world, name, world.pool_name)
    world.run(HOUR)
    assert is_in(world, name) == (world.pool_name, world.pool_name)
    assert world.workloads.drains == {}
    assert world.machines[name].boots == 2
    world.story.judge()


def test_who_asks_for_a_move_and_thinks_better_of_it_has_no_server_booted() -> None:
    world = begin(servers=1)
    (name,) = world.names
    slurm_job(world, name, 3)
    move(world, name, "pods")
    world.run(HOUR)
    move(world, name, world.pool_name)
    world.run(4 * HOUR)
    assert world.machines[name].boots == 0
    assert world.workloads.drains == {}
    assert all(m["status"]["phase"] == "Cancelled" for m in world.maintenances())
    world.story.judge()


def test_a_server_that_loses_its_power_before_its_turn_stays_where_its_jobs_are() -> None:
    """The reboot of an administrator, too, brings it back to the pool that it is in."""
    world = begin(servers=1)
    (name,) = world.names
    world.cluster.patch(of(NodePool), "pods", {"spec": {"upgradeStrategy": {"paused": True}}}, manager="kubectl")
    move(world, name, "pods")
    world.run(600)
    status = world.cluster.read(Server, name).status
    assert (status.assigned_node_pool_ref, status.assigned_image_ref) == (world.pool_name, world.images[OLD])
    people.ask(world, name, "provisioner.dev/RebootRequested", "WhenIdle", "firmware")
    world.run(HOUR)
    assert world.machines[name].boots == 1
    assert is_in(world, name) == (world.pool_name, world.pool_name)
    world.story.judge()


def test_the_first_servers_of_a_pool_whose_image_nobody_has_used_go_one_after_the_other() -> None:
    world = begin(servers=3, image=NEW)
    for name in world.names:
        move(world, name, "pods")
    world.run(300)
    assert sorted(machine.boots for machine in world.machines.values()) == [0, 0, 1], "the canary, which soaks"
    world.run(HOUR)
    assert [is_in(world, name)[0] for name in world.names] == ["pods"] * 3
    assert [machine.running_image for machine in world.machines.values()] == [world.images[NEW]] * 3
    world.story.judge()


def test_a_pool_whose_image_is_bad_takes_one_server_and_stops_and_it_can_be_sent_back() -> None:
    world = begin(servers=3, image=NEW)
    for machine in world.machines.values():
        machine.spoiled[world.images[NEW]] = {"checks fail"}
    for name in world.names:
        move(world, name, "pods")
    world.run(24 * HOUR)
    assert rollout(world).stopped.reason == "Failures"
    assert [machine.running_image for machine in world.machines.values()].count(world.images[NEW]) == 1
    for name in world.names:
        move(world, name, world.pool_name)
    world.run(3 * HOUR)
    assert [machine.running_image for machine in world.machines.values()] == [world.images[OLD]] * 3
    assert world.workloads.drains == {}
    world.story.judge()


def test_servers_are_borrowed_for_the_night_and_go_back_in_the_morning_as_their_jobs_end() -> None:
    night = {"schedule": "0 20 * * *", "durationSeconds": 10 * 3600, "timeZone": "UTC"}
    world = begin()  # at noon
    lent, kept = world.names
    world.cluster.patch(of(Server), lent, {"metadata": {"labels": {"example.com/lent": "true"}}}, manager="kubectl")
    borrows = [{"nodePoolRef": world.pool_name, "selector": "example.com/lent=true", "windows": [night]}]
    world.cluster.patch(of(NodePool), "pods", {"spec": {"borrows": borrows}}, manager="kubectl")
    world.run(7 * HOUR)
    assert is_in(world, lent)[0] in (None, world.pool_name)
    slurm_job(world, lent, 2)  # until 21:00
    world.run(1.5 * HOUR)
    assert is_in(world, lent)[0] in (None, world.pool_name), "its job goes on"
    world.run(1.5 * HOUR)
    assert is_in(world, lent) == ("pods", "pods")
    world.start_job(FakeJob("night", (lent,), ends_at=world.clock.in_seconds(9 * HOUR)))  # from 22:00 to 7:00
    world.run(8.5 * HOUR)
    assert is_in(world, lent) == ("pods", "pods"), "the window is over, its pod is not"
    world.run(2 * HOUR)
    assert is_in(world, lent) == (world.pool_name, world.pool_name)
    assert world.machines[kept].boots == 0
    assert world.machines[lent].boots == 2
    assert world.workloads.interrupted == []
    assert world.workloads.drains == {}
    assert to_json(world.cluster.read(Server, lent).spec)["nodePoolRef"] == world.pool_name, "nobody writes a wish"
    world.story.judge()


@pytest.mark.parametrize("field", ["selector", "schedule"])
def test_a_borrowing_that_cannot_be_read_borrows_nothing_and_is_told(field: str) -> None:
    world = begin()
    window = {"schedule": "0 12 * * *" if field == "selector" else "0 99 * * *", "durationSeconds": 36000}
    selector = "a in" if field == "selector" else "a=b"
    borrows = [{"nodePoolRef": world.pool_name, "selector": selector, "windows": [window]}]
    world.cluster.patch(of(NodePool), "pods", {"spec": {"borrows": borrows}}, manager="kubectl")
    world.run(600)
    conditions = {each.type: each for each in world.cluster.read(NodePool, "pods").status.conditions}
    assert conditions["Progressing"].reason == "Unreadable"
    assert "spec.borrows" in conditions["Progressing"].message
    assert world.maintenances() == []


def there_and_back(strike: tuple[int, str, Injection] | None = None) -> World:
    """A server with a job of Slurm goes to the pool of pods when that has ended, runs a pod there, and comes back."""
    world = begin(servers=1)
    (name,) = world.names
    if strike is not None:
        world.meter.trigger = Strike(world, *strike, live=False)
    world.meter.effects.clear()
    slurm_job(world, name, 1)
    move(world, name, "pods")
    world.run(3 * HOUR)
    assert is_in(world, name) == ("pods", "pods"), "\n".join(world.story.lines)
    assert name in world.workloads.drains
    assert world.start_job(FakeJob("pod", (name,), ends_at=world.clock.in_seconds(HOUR)))
    move(world, name, world.pool_name)
    world.run(3 * HOUR)
    assert is_in(world, name) == (world.pool_name, world.pool_name), "\n".join(world.story.lines)
    assert world.workloads.drains == {}
    assert world.workloads.interrupted == []
    assert world.machines[name].boots == 2
    world.story.judge()
    return world


@cache
def effects_of_a_move() -> int:
    return len(there_and_back().meter.effects)


@pytest.mark.timeout(24 * 3600 if LONG else 900)
def test_the_leader_is_killed_at_whatever_it_does_for_a_move() -> None:
    """Before and after each effect with CHAOS=long; else at some of them, as the seed of the run has it."""
    turns = [(number, moment) for number in range(1, effects_of_a_move() + 1) for moment in ("before", "after")]
    for number, moment in turns if LONG else replay.rng("moves").sample(turns, 6):
        there_and_back((number, moment, TROUBLES[0]))
