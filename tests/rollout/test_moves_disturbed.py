"""Moves between NodePools in the middle of which something else happens: an upgrade, a bad image, a pool that goes."""

from __future__ import annotations

from provisioner.api import NodePool, Server
from provisioner.api.pools.pool_settings import JobSettings, SlurmJobs
from provisioner.cluster.resources import of
from tests.maintenance.chaos import people
from tests.maintenance.chaos.world import NEW, OLD, World
from tests.rollout.test_moves_between_pools import HOUR, begin, is_in, move, moved, slurm_job


def edit_pool(world: World, name: str, **spec: object) -> None:
    world.cluster.patch(of(NodePool), name, {"spec": spec}, manager="kubectl")


def assigned(world: World, name: str) -> tuple[str | None, str | None]:
    """What it boots next: NodePool and Image."""
    status = world.cluster.read(Server, name).status
    return status.assigned_node_pool_ref, status.assigned_image_ref


def test_a_server_booted_before_pools_were_on_record_is_still_in_its_pool_after_a_kubelet_was_silent() -> None:
    world = begin(servers=1, image=NEW)
    (name,) = world.names
    assert world.cluster.read(Server, name).status.order.node_pool_ref is None, "as the product before left it"
    slurm_job(world, name, 3)
    edit_pool(world, "pods", upgradeStrategy={"paused": True})
    move(world, name, "pods")
    world.machines[name].keep("kubelet flaps")
    world.run(900)
    world.machines[name].lasting.clear()
    edit_pool(world, "pods", upgradeStrategy={"paused": False})
    world.run(1800)
    assert world.workloads.interrupted == []
    assert world.machines[name].boots == 0
    assert is_in(world, name)[0] == world.pool_name
    world.run(3 * HOUR)
    assert is_in(world, name) == ("pods", "pods")
    world.story.judge()


def test_a_server_that_moves_within_one_slurm_takes_jobs_again_once_it_is_there() -> None:
    slurm = JobSettings(slurm=SlurmJobs(url="http://slurm.invalid:6820/", credentials_name="slurm"))
    world, name = moved(jobs=slurm)
    assert world.workloads.drains == {}
    slurm_job(world, name, 1)
    world.story.judge()


def test_slurm_gives_a_server_that_has_left_no_job_when_it_is_taken_out_of_all_pools() -> None:
    world, name = moved()
    world.cluster.patch(of(Server), name, {"spec": {"nodePoolRef": None}}, manager="kubectl")
    world.run(HOUR)
    assert name in world.workloads.drains
    move(world, name, world.pool_name)
    world.run(HOUR)
    assert is_in(world, name) == (world.pool_name, world.pool_name)
    assert world.workloads.drains == {}


def test_a_server_that_fails_where_it_moved_to_boots_the_image_of_its_old_pool_for_its_old_pool() -> None:
    """Never the one pool's image with the other one's settings."""
    world = begin(servers=1, image=NEW)
    (name,) = world.names
    world.machines[name].spoiled[world.images[NEW]] = {"checks fail"}
    move(world, name, "pods")
    world.run(3 * HOUR)
    assert is_in(world, name)[0] == "pods"
    assert assigned(world, name) == (world.pool_name, world.images[OLD])
    people.ask(world, name, "provisioner.dev/RebootRequested", "WhenIdle", "give me back what worked")
    world.run(3 * HOUR)
    assert is_in(world, name) == (world.pool_name, world.pool_name)
    assert world.machines[name].running_image == world.images[OLD]
    assert world.workloads.drains == {}
    assert world.machines[name].boots == 2, "its place in the new pool is kept until a person decides"
    world.story.judge()


def test_a_server_that_arrives_when_its_new_pool_wants_another_image_already_boots_the_one_that_it_runs() -> None:
    world = begin(servers=1, image=NEW)
    (name,) = world.names
    move(world, name, "pods")
    world.run(600, until=lambda: is_in(world, name)[0] == "pods")
    assert is_in(world, name)[0] == "pods"
    edit_pool(world, "pods", imageRef=world.images[OLD], upgradeStrategy={"paused": True})
    world.run(HOUR)
    assert world.machines[name].running_image == world.images[NEW]
    assert assigned(world, name) == ("pods", world.images[NEW])
    world.story.judge()


def test_a_pool_that_is_deleted_keeps_no_server_closed_that_was_to_move_there() -> None:
    world = begin(servers=1)
    (name,) = world.names
    slurm_job(world, name, 1)
    move(world, name, "pods")
    world.run(600)
    assert name in world.workloads.drains
    world.cluster.delete(of(NodePool), "pods")
    world.run(2 * HOUR)
    assert world.workloads.drains == {}
    assert world.is_schedulable(name)
    assert world.machines[name].boots == 0
    move(world, name, world.pool_name)
    world.run(600)
    assert world.is_over()
    world.story.judge()


def test_a_loss_of_power_brings_no_server_into_an_image_that_has_had_no_canary() -> None:
    world = begin(servers=3, image=NEW)
    for machine in world.machines.values():
        machine.spoiled[world.images[NEW]] = {"checks fail"}
    edit_pool(world, "pods", upgradeStrategy={"paused": True})
    for name in world.names:
        move(world, name, "pods")
    world.run(300)
    for machine in world.machines.values():
        machine.go_down(None)
    world.run(HOUR)
    assert [machine.running_image for machine in world.machines.values()] == [world.images[OLD]] * 3
    assert [machine.boots for machine in world.machines.values()] == [1, 1, 1]
    assert [is_in(world, name)[0] for name in world.names] == [world.pool_name] * 3
    world.story.judge()


def test_a_server_that_is_out_of_use_by_itself_boots_for_the_pool_that_others_are_in_use_in() -> None:
    world = begin(servers=2)
    first, second = world.names
    move(world, first, "pods")
    world.run(HOUR)
    edit_pool(world, "pods", upgradeStrategy={"paused": True})
    world.machines[second].go_down(None)
    move(world, second, "pods")
    world.run(HOUR)
    assert is_in(world, second) == ("pods", "pods")
    world.story.judge()
