"""A rollout from its begin to its end: the real rollout, executor, boot, join and power controllers, on one clock.

Simulated, in tests/maintenance/chaos: machines, kubelets, agents, checks, jobs, the API server, time.
"""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.pools.upgrade_strategy import Canary, UpgradeDeadline, UpgradeStrategy, WorkloadGate
from provisioner.cluster.resources import NODES, of
from tests.maintenance.chaos import invariants, people
from tests.maintenance.chaos.fake_machine import Habit
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.world import NEW, OLD, STALE, Fleet, World

pytestmark = pytest.mark.slow

HOUR = 3600.0


def begin(servers: int = 3, *, slurm: bool = True, budget: int = 10, **strategy: Any) -> World:
    wanted = {
        "max_parallel": "100%",
        "max_unavailable": "100%",
        "canary": Canary(count=1, soak_seconds=600),
        **strategy,
    }
    fleet = Fleet(servers=servers, budget=budget, slurm=slurm, rollout=UpgradeStrategy(**wanted))
    world = World(fleet, "rollout")
    world.start_controller()
    world.run(60)
    return world


def status(world: World) -> Any:
    return world.cluster.read(NodePool, world.pool_name).status


def said_of(world: World) -> str:
    """What condition and rollout say alike, of one that is complete."""
    said = status(world)
    progressing = next(c for c in said.conditions if c.type == "Progressing")
    assert (progressing.status, progressing.reason) == ("False", "Complete")
    words = said.rollout.message.removeprefix(f"complete since {said.rollout.completed_time}")
    assert progressing.message == f"all servers that can have it have Image '{said.rollout.image_ref}'{words}"
    return str(words)


def images(world: World) -> list[str]:
    return [world.machines[name].running_image for name in world.names]


def assigned(world: World) -> list[str | None]:
    return [world.cluster.read(Server, name).status.assigned_image_ref for name in world.names]


def end_well(world: World) -> None:
    invariants.check_end(world)
    world.story.judge()


def test_an_idle_fleet_gets_the_new_image_the_canary_first() -> None:
    world = begin()
    old, new = world.images[OLD], world.images[NEW]
    assert status(world).released.image_ref == old
    world.pool_image(NEW)
    world.run(300)
    assert images(world) == [new, old, old], "the others wait until the canary has been in use for its soak"
    assert assigned(world) == [new, old, old]
    assert status(world).released.image_ref == old
    assert status(world).rollout.stage == "CanarySoak"
    world.run(HOUR)
    assert images(world) == assigned(world) == [new, new, new]
    assert status(world).released.image_ref == new
    assert status(world).rollout.completed_time is not None
    assert [record.outcome for record in status(world).history] == ["Completed"]
    assert [machine.boots for machine in world.machines.values()] == [1, 1, 1]
    end_well(world)


def test_servers_follow_as_their_jobs_end_and_no_job_is_interrupted() -> None:
    world = begin()
    old, new = world.images[OLD], world.images[NEW]
    world.start_job(FakeJob("pod", (world.names[0],), ends_at=world.clock.in_seconds(2 * HOUR)))
    world.start_job(FakeJob("4711", (world.names[1],), kind="SlurmJob", ends_at=world.clock.in_seconds(3 * HOUR)))
    world.pool_image(NEW)
    world.run(HOUR)
    assert images(world) == [old, old, new], "the idle one is the canary"
    assert {wait.reason: wait.count for wait in status(world).rollout.waits} == {"Job": 2}
    assert [blocker.job for blocker in status(world).rollout.blockers] == ["Pod pod", "SlurmJob 4711"]
    world.run(1.5 * HOUR)
    assert images(world) == [new, old, new]
    world.run(HOUR)
    assert images(world) == [new, new, new]
    assert world.workloads.interrupted == []
    end_well(world)


def test_a_maintenance_that_somebody_else_wrote_to_meanwhile_is_written_on_the_copy_of_now() -> None:
    world = begin(servers=1)
    world.start_job(FakeJob("4711", (world.names[0],), kind="SlurmJob", ends_at=world.clock.in_seconds(HOUR)))
    world.pool_image(NEW)
    world.run(600)
    note = {"metadata": {"annotations": {"example.com/ticket": "4711"}}}
    world.cluster.patch(of(Maintenance), f"{world.names[0]}-1", note, manager="kubectl")
    world.run(2 * HOUR)
    assert images(world) == [world.images[NEW]]
    end_well(world)


def test_nobody_else_begins_while_it_is_not_seen_what_was_written_last() -> None:
    world = begin(slurm=False)
    world.replicas[0].freeze(60, "maintenances")
    world.pool_image(NEW)
    world.run(1)
    assert granted(world) == ["s1"]
    world.start_job(FakeJob("pod", (world.names[0],), ends_at=world.clock.in_seconds(600)))
    world.run(50)
    assert granted(world) == ["s1"], "there is one canary, and it may still begin"
    world.run(HOUR)
    assert images(world) == [world.images[NEW]] * 3
    assert world.workloads.interrupted == []
    end_well(world)


def granted(world: World) -> list[str]:
    """Servers whose turn has come."""
    turns = {m["spec"]["serverRef"]: m["spec"]["requestors"][0].get("turn") for m in world.maintenances()}
    return sorted(name for name, turn in turns.items() if turn == "Granted")


def spoil(world: World, image: str, habit: Habit) -> None:
    for machine in world.machines.values():
        machine.spoiled[world.images[image]] = {habit}


def test_jobs_are_steered_from_as_many_of_the_last_servers_as_others_are_free_as_a_whole() -> None:
    world = begin(servers=4, slurm=False, canary=Canary(count=0))
    first, last = world.names[0], world.names[2:]
    for name in last:
        world.start_job(FakeJob(f"part-{name}", (name,), share=0.5))
    world.pool_image(NEW)
    world.run(HOUR)
    assert images(world) == [world.images[NEW]] * 2 + [world.images[OLD]] * 2
    assert steered(world) == last
    world.start_job(FakeJob("small", (first,), share=0.1, ends_at=world.clock.in_seconds(HOUR)))
    world.run(HOUR / 2)
    assert len(steered(world)) == 1
    world.run(HOUR)
    assert steered(world) == last
    set_strategy(world, {"steerJobs": False})
    world.run(60)
    assert steered(world) == []


def steered(world: World) -> list[str]:
    """Servers from which jobs are steered away."""
    turns = {m["spec"]["serverRef"]: m["spec"]["requestors"][0].get("turn") for m in world.maintenances()}
    return sorted(name for name, turn in turns.items() if turn == "Steered")


@pytest.mark.parametrize("habit", ["checks fail", "never returns"])
def test_a_bad_image_stops_at_its_canary_until_a_person_goes_back(habit: Habit) -> None:
    world = begin()
    old, new = world.images[OLD], world.images[NEW]
    spoil(world, NEW, habit)
    world.pool_image(NEW)
    world.run(24 * HOUR)
    said = status(world)
    assert (said.failed, said.waiting) == (1, 2)
    assert said.rollout.stopped.reason == "Failures"
    assert {c.type: (c.status, c.reason) for c in said.conditions} == {
        "Ready": ("False", "ServersNotReady" if said.unavailable else "ImageOutdated"),
        "Progressing": ("False", "Stopped"),
        "Paused": ("True", "Failures"),
        "Degraded": ("True", "ServersFailed"),
    }
    assert said.released.image_ref == old
    first = world.cluster.read(Server, world.names[0])
    assert first.status.upgrade_failure.image_ref == new
    assert first.status.assigned_image_ref == old, "its next boot is into what it ran before"
    assert [machine.boots for machine in world.machines.values()][1:] == [0, 0]
    world.pool_image(OLD)
    world.run(2 * HOUR)
    assert images(world) == [old, old, old]
    assert status(world).failed == status(world).unavailable == 0
    assert status(world).rollout.completed_time is not None
    assert [record.outcome for record in status(world).history] == ["Completed", "Superseded"]
    end_well(world)


def test_a_server_that_reboots_before_its_turn_boots_the_old_image() -> None:
    world = begin()
    old, new = world.images[OLD], world.images[NEW]
    world.start_job(FakeJob("long", (world.names[1],)))
    world.pool_image(NEW)
    world.run(100)
    people.ask(world, world.names[1], "provisioner.dev/RebootRequested", "Now", "it hangs")
    people.ask(world, world.names[2], "provisioner.dev/RebootRequested", "WhenIdle", "please")
    world.run(400)
    assert [boot.image for boot in world.machines[world.names[1]].log] == [old, old]
    assert [boot.image for boot in world.machines[world.names[2]].log] == [old, old]
    world.run(2 * HOUR)
    assert images(world) == [new, new, new]
    assert [machine.boots for machine in world.machines.values()] == [1, 2, 2]
    end_well(world)


def test_a_rollout_that_is_undone_half_way_goes_back_without_a_canary() -> None:
    world = begin(servers=4, max_parallel=1)
    old, new = world.images[OLD], world.images[NEW]
    world.pool_image(NEW)
    world.run(850)
    assert images(world)[:2] == [new, new]
    assert images(world)[3] == old
    world.pool_image(OLD)
    world.run(600)
    assert images(world).count(new) < 3, "the first goes back at once"
    world.run(2 * HOUR)
    assert images(world) == [old] * 4
    assert world.machines[world.names[3]].boots == 0, "who had not gone need not come back"
    assert status(world).released.image_ref == old
    end_well(world)


def test_an_image_that_is_changed_again_boots_nobody_twice_who_had_not_begun() -> None:
    world = begin(canary=Canary(count=0))
    stale, new = world.images[STALE], world.images[NEW]
    for number, name in enumerate(world.names):
        world.start_job(FakeJob(f"job-{number}", (name,), ends_at=world.clock.in_seconds(HOUR)))
    world.pool_image(STALE)
    world.run(1800)
    world.pool_image(NEW)
    world.run(2 * HOUR)
    assert images(world) == [new, new, new]
    assert [machine.boots for machine in world.machines.values()] == [1, 1, 1]
    assert not any(boot.image == stale for machine in world.machines.values() for boot in machine.log)
    end_well(world)


def test_a_paused_rollout_opens_its_servers_to_jobs_again_and_goes_on_when_resumed() -> None:
    world = begin(canary=Canary(count=0), max_parallel=1)
    for number, name in enumerate(world.names):
        world.start_job(FakeJob(f"job-{number}", (name,), ends_at=world.clock.in_seconds(2 * HOUR)))
    world.pool_image(NEW)
    world.run(600)
    assert not any(world.is_schedulable(name) for name in world.names), "each is closed, for its job fills it"
    set_strategy(world, {"paused": True})
    world.run(60)
    assert all(world.is_schedulable(name) for name in world.names)
    assert world.workloads.drains == {}
    assert {c.type: c.reason for c in status(world).conditions}["Paused"] == "Requested"
    world.run(4 * HOUR)
    assert [machine.boots for machine in world.machines.values()] == [0, 0, 0]
    set_strategy(world, {"paused": False})
    world.run(2 * HOUR)
    assert images(world) == [world.images[NEW]] * 3
    end_well(world)


def test_what_a_person_holds_or_excludes_is_left_alone_and_told() -> None:
    world = begin(canary=Canary(count=0))
    old, new = world.images[OLD], world.images[NEW]
    held = {"type": HOLD_REQUESTED, "status": "True", "reason": "Person", "message": "mine"}
    patch = {"status": {"conditions": [{**held, "lastTransitionTime": rfc3339(world.clock.now)}]}}
    world.cluster.strategic_patch(NODES, world.names[0], patch, subresource="status", manager="kubectl")
    world.cluster.patch(of(Server), world.names[1], {"spec": {"upgrades": "Excluded"}}, manager="kubectl")
    world.run(60)
    world.pool_image(NEW)
    world.run(2 * HOUR)
    assert images(world) == [old, old, new]
    said = status(world)
    assert {wait.reason: wait.count for wait in said.rollout.waits} == {"Held": 1, "Excluded": 1}
    assert (said.desired, said.updated, said.waiting, said.left_alone) == (3, 1, 0, 2)
    assert said_of(world).endswith("but for 1 excluded from rollouts (spec.upgrades) (s2), 1 held by a person (s1)")


def test_at_its_deadline_a_gang_ends_together_after_its_warning() -> None:
    world = begin(canary=Canary(count=0), deadline=UpgradeDeadline(after_seconds=7200))
    world.start_job(FakeJob("gang", tuple(world.names[:2]), kind="PodGroup"))
    world.start_job(FakeJob("asked-not-to", (world.names[2],), do_not_disrupt=True))
    world.pool_image(NEW)
    world.run(7000)
    assert world.workloads.jobs["gang"].warned_for is not None
    assert "gang" not in world.workloads.interrupted
    world.run(2 * HOUR)
    assert images(world) == [world.images[NEW], world.images[NEW], world.images[OLD]]
    assert set(world.workloads.interrupted) == {"gang"}


def test_an_image_that_the_boot_hosts_lose_on_the_way_halts_the_rollout_until_they_have_it() -> None:
    world = begin(canary=Canary(count=0), max_parallel=1)
    world.pool_image(NEW)
    world.run(30)
    world.image_is_there(NEW, there=False)
    world.run(2 * HOUR)
    assert "cannot be booted" in status(world).rollout.message
    assert images(world).count(world.images[NEW]) <= 1
    world.image_is_there(NEW, there=True)
    world.run(2 * HOUR)
    assert images(world) == [world.images[NEW]] * 3
    assert [machine.boots for machine in world.machines.values()] == [1, 1, 1]
    end_well(world)


def set_strategy(world: World, changes: dict[str, Any]) -> None:
    patch = {"spec": {"upgradeStrategy": changes}}
    world.cluster.patch(of(NodePool), world.pool_name, patch, manager="kubectl")


def work(world: World, name: str, server: str, *, fails: bool) -> None:
    """A job of five minutes, and then the next one."""
    number = world.work_number = getattr(world, "work_number", 0) + 1  # type: ignore[attr-defined]
    bad = fails and world.machines[server].running_image == world.images[NEW]
    ends = world.clock.in_seconds(300)
    world.start_job(FakeJob(f"{name}-{number}", (server,), ends_at=ends, fails=bad))
    world.later(301, lambda: work(world, name, server, fails=fails))


def test_a_healthy_image_that_breaks_every_job_stops_after_its_canary() -> None:
    world = begin(slurm=False, canary=Canary(count=1, soak_seconds=6 * 3600))
    for server in world.names:
        work(world, "job", server, fails=True)
    world.run(4 * HOUR)
    world.pool_image(NEW)
    world.run(12 * HOUR)
    said = status(world)
    assert said.rollout.stopped.reason == "Workloads"
    assert said.rollout.workloads.new.failed >= 3
    assert said.rollout.workloads.old.failed == 0
    assert images(world).count(world.images[NEW]) == 1
    assert said.released.image_ref == world.images[OLD], "time alone releases nothing that is stopped"
    assert world.workloads.interrupted == []
    set_strategy(world, {"retriedTime": rfc3339(world.clock.now)})
    world.run(60)
    assert status(world).rollout.stopped is None
    assert status(world).rollout.workloads is None
    world.pool_image(OLD)
    world.run(2 * HOUR)
    assert images(world) == [world.images[OLD]] * 3


def test_a_stage_may_wait_for_jobs_to_have_ended_on_the_new_image() -> None:
    gate = WorkloadGate(minimum_jobs=5)
    world = begin(slurm=False, workloads=gate, canary=Canary(count=1, soak_seconds=0))
    world.pool_image(NEW)
    world.run(2 * HOUR)
    assert images(world) == [world.images[NEW], world.images[OLD], world.images[OLD]]
    assert "5 more must end on the new image" in status(world).rollout.message
    work(world, "job", world.names[0], fails=False)
    world.run(2 * HOUR)
    assert images(world) == [world.images[NEW]] * 3
