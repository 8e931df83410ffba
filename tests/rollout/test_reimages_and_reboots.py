"""What people order of single servers before, during and after a rollout: who is left, and who boots how often.

As in test_rollout_of_a_fleet.py: the real controllers, on one clock.
"""

from __future__ import annotations

import pytest

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import REBOOT_REQUESTED, REIMAGE_REQUESTED
from provisioner.api.pools.upgrade_strategy import Canary, Wave
from provisioner.cluster.resources import of
from tests.maintenance.chaos import people
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.world import NEW, OLD, STALE, World
from tests.rollout.chaos import administrators
from tests.rollout.test_rollout_of_a_fleet import HOUR, begin, end_well, images, said_of, set_strategy, spoil, status

pytestmark = pytest.mark.slow


def boots(world: World) -> list[int]:
    return [machine.boots for machine in world.machines.values()]


def waits(world: World) -> dict[str, int]:
    return {wait.reason: wait.count for wait in status(world).rollout.waits}


def reimage(world: World, name: str, image: str = STALE) -> None:
    people.ask(world, name, REIMAGE_REQUESTED, "WhenIdle", f"image={world.images[image]} this once")


def reboot(world: World, name: str) -> None:
    people.ask(world, name, REBOOT_REQUESTED, "WhenIdle", "please")


def run_job(world: World, name: str, hours: float) -> None:
    world.start_job(FakeJob(f"job-{name}", (name,), ends_at=world.clock.in_seconds(hours * HOUR)))


def test_a_server_that_was_reimaged_follows_a_rollout_that_begins_later_as_its_job_ends() -> None:
    world = begin(servers=2, slurm=False)
    second = world.names[1]
    new, stale = world.images[NEW], world.images[STALE]
    reimage(world, second)
    world.run(600)
    assert images(world) == [world.images[OLD], stale]
    run_job(world, second, 2)
    world.pool_image(NEW)
    world.run(HOUR)
    assert images(world) == [new, stale]
    assert status(world).rollout.completed_time is None
    assert (status(world).rollout.message, waits(world)) == (
        "all servers may follow; 1 server waits for its jobs",
        {"Job": 1},
    )
    world.run(1.5 * HOUR)
    assert images(world) == [new, new]
    assert (said_of(world), waits(world)) == ("", {})
    assert boots(world) == [1, 2]
    reboot(world, second)
    world.run(HOUR)
    assert images(world) == [new, new]
    assert (said_of(world), boots(world)) == ("", [1, 3])
    assert [record.outcome for record in status(world).history] == ["Completed"]
    assert world.workloads.interrupted == []
    end_well(world)


def test_a_server_that_is_reimaged_after_the_rollout_is_left_and_named_until_a_reboot_brings_it_back() -> None:
    world = begin(servers=2, slurm=False, canary=Canary(count=0))
    world.pool_image(NEW)
    world.run(HOUR)
    assert (said_of(world), boots(world)) == ("", [1, 1])
    completed = status(world).rollout.completed_time
    reimage(world, world.names[1])
    world.run(HOUR)
    assert images(world) == [world.images[NEW], world.images[STALE]]
    assert said_of(world) == ", but for 1 reimaged by a person since the rollout began (s2)"
    assert (waits(world), status(world).rollout.completed_time) == ({"Once": 1}, completed)
    reboot(world, world.names[1])
    world.run(HOUR)
    assert images(world) == [world.images[NEW]] * 2
    assert (said_of(world), boots(world)) == ("", [1, 3])
    end_well(world)


def test_once_all_may_follow_an_ordered_reboot_boots_the_new_image_and_no_second_one_comes_after_it() -> None:
    world = begin(servers=3, slurm=False, max_parallel=1)
    old, new = world.images[OLD], world.images[NEW]
    for name in world.names[1:]:
        run_job(world, name, 3)
    world.pool_image(NEW)
    world.run(60)
    reboot(world, world.names[2])
    assert world.cluster.read(NodePool, world.pool_name).status.rollout.stage != "Rest"
    world.run(2 * HOUR)
    assert images(world) == [new, old, old]
    world.run(1.5 * HOUR)
    assert images(world) == [new, new, new]
    assert boots(world) == [1, 1, 1]
    assert said_of(world) == ""
    end_well(world)


def test_until_all_may_follow_an_ordered_reboot_boots_what_the_server_had() -> None:
    waves = (Wave(share=34, soak_seconds=4 * 3600),)
    world = begin(servers=3, slurm=False, waves=waves)
    world.pool_image(NEW)
    world.run(2 * HOUR)
    new, old = world.images[NEW], world.images[OLD]
    assert images(world) == [new, new, old], "the wave"
    reboot(world, world.names[2])
    world.run(HOUR)
    assert images(world) == [new, new, old]
    assert boots(world) == [1, 1, 1]
    world.run(6 * HOUR)
    assert images(world) == [new, new, new]
    assert (said_of(world), boots(world)) == ("", [1, 1, 2])
    end_well(world)


def test_while_it_is_paused_an_ordered_reboot_boots_what_the_server_had() -> None:
    world = begin(servers=2, slurm=False)
    run_job(world, world.names[1], 3)
    world.pool_image(NEW)
    world.run(HOUR)
    set_strategy(world, {"paused": True})
    reboot(world, world.names[1])
    world.run(3 * HOUR)
    assert images(world) == [world.images[NEW], world.images[OLD]]
    assert waits(world) == {"Paused": 1}
    set_strategy(world, {"paused": False})
    world.run(HOUR)
    assert images(world) == [world.images[NEW]] * 2
    assert (said_of(world), boots(world)) == ("", [1, 2])


def test_what_was_left_follows_when_it_is_let_go_and_the_rollout_is_under_way_meanwhile() -> None:
    world = begin(servers=2, slurm=False)
    world.cluster.patch(of(Server), world.names[1], {"spec": {"upgrades": "Excluded"}}, manager="kubectl")
    world.run(60)
    world.pool_image(NEW)
    world.run(HOUR)
    left = ", but for 1 excluded from rollouts (spec.upgrades) (s2)"
    assert said_of(world) == left
    reboot(world, world.names[1])
    world.run(HOUR)
    assert (images(world), boots(world)) == ([world.images[NEW], world.images[OLD]], [1, 1])
    assert said_of(world) == left
    run_job(world, world.names[1], 1)
    administrators.exclude(world, world.names[1], excluded=False)
    world.run(600)
    assert status(world).rollout.completed_time is None
    assert waits(world) == {"Job": 1}
    world.run(2 * HOUR)
    assert (said_of(world), boots(world)) == ("", [1, 2])
    assert [(record.outcome, record.updated) for record in status(world).history] == [("Completed", 2)]
    end_well(world)


def test_it_is_not_complete_while_the_last_server_is_rebooted_for_somebody() -> None:
    world = begin(servers=2, slurm=False)
    run_job(world, world.names[1], 3)
    world.pool_image(NEW)
    world.run(HOUR)
    set_strategy(world, {"paused": True})  # else it would boot the new image
    reboot(world, world.names[1])
    world.run(3 * HOUR, until=lambda: is_disturbed(world))
    set_strategy(world, {"paused": False})
    world.run(30)
    assert is_disturbed(world)
    assert status(world).rollout.completed_time is None
    world.run(HOUR)
    assert images(world) == [world.images[NEW]] * 2
    assert (said_of(world), boots(world)) == ("", [1, 2])


def is_disturbed(world: World) -> bool:
    return any((body.get("status") or {}).get("phase") == "Rebooting" for body in world.maintenances())


def test_a_reimage_that_waits_for_its_job_when_the_rollout_begins_is_not_undone_by_it() -> None:
    world = begin(servers=2, slurm=False, canary=Canary(count=0))
    run_job(world, world.names[1], 1)
    reimage(world, world.names[1])
    world.run(60)
    world.pool_image(NEW)
    world.run(4 * HOUR)
    assert images(world) == [world.images[NEW], world.images[STALE]]
    assert said_of(world) == ", but for 1 reimaged by a person since the rollout began (s2)"
    assert boots(world) == [1, 1]
    assert not any(m.status.phase in ("Waiting", None) for m in world.cluster.read_all(Maintenance))


def test_a_reboot_that_failed_before_a_rollout_does_not_stop_the_way_back() -> None:
    world = begin(servers=2, slurm=False, canary=Canary(count=0))
    spoil(world, OLD, "checks fail")
    reboot(world, world.names[1])
    world.run(4 * HOUR)
    assert "Failed" in {m["status"].get("phase") for m in world.maintenances()}
    administrators.spoil(world, OLD)
    reboot(world, world.names[1])
    world.run(4 * HOUR)
    world.pool_image(NEW)
    world.run(6 * HOUR)
    assert images(world) == [world.images[NEW]] * 2
    world.pool_image(OLD)
    world.run(4 * HOUR)
    assert images(world) == [world.images[OLD]] * 2
    end_well(world)


def test_two_reboots_of_a_server_are_one_also_where_the_rollout_is_paused_before_the_first_is_over() -> None:
    world = begin(servers=3, slurm=False, max_parallel=1, canary=Canary(count=1, soak_seconds=60))
    third = world.names[2]
    for name in world.names[1:]:
        run_job(world, name, 3)
    world.pool_image(NEW)
    world.run(2 * HOUR)
    reboot(world, third)
    world.run(60)
    now = rfc3339(world.clock.now)
    people.file(world, third, 7, {"name": "user-bob", "action": "Reboot", "policy": "WhenIdle", "requestedTime": now})

    def is_verifying() -> bool:
        return any(m["status"].get("phase") == "Verifying" for m in world.maintenances())

    world.run(2 * HOUR, until=is_verifying)
    assert is_verifying()
    set_strategy(world, {"paused": True})
    world.run(2 * HOUR)
    assert (images(world)[2], boots(world)[2]) == (world.images[NEW], 1)
    end_well(world)


def test_a_server_that_comes_back_to_its_pool_raises_no_alarm_where_another_broke_after_the_rollout() -> None:
    world = begin(servers=3, slurm=False, canary=Canary(count=0))
    world.pool_image(NEW)
    world.run(HOUR)
    reimage(world, world.names[2])
    world.run(HOUR)
    administrators.power_fails(world, world.names[0])
    world.run(HOUR)
    assert status(world).rollout.completed_time is not None
    reboot(world, world.names[2])
    world.run(2 * HOUR)
    rollout = status(world).rollout
    assert images(world)[2] == world.images[NEW]
    assert (rollout.stopped, rollout.completed_time is None) == (None, False)


def test_nobody_asks_what_runs_in_a_pool_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    world = begin(servers=3, slurm=True, canary=Canary(count=0))
    world.pool_image(NEW)
    world.run(2 * HOUR)
    assert said_of(world) == ""

    def look(server: Server, *_: object, **__: object) -> object:
        raise AssertionError(f"what runs on {server.name} was asked")

    monkeypatch.setattr(world.workloads, "look", look)
    world.run(2 * HOUR)
