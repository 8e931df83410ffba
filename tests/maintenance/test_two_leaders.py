"""Two executors at once, one of which sees Nodes as they were: what the other takes in is not withdrawn."""

from __future__ import annotations

from provisioner.api.nodes.contract import REBOOT_REQUESTED
from tests.maintenance.chaos import people
from tests.maintenance.chaos.world import Fleet, World


def test_a_request_is_not_withdrawn_by_who_has_lost_its_watch_of_nodes() -> None:
    world = World(Fleet(slurm=False), "two leaders")
    (name,) = world.names
    behind = world.start_controller()
    world.run(60)
    behind.freeze(600, "nodes")
    world.start_controller()
    people.ask(world, name, REBOOT_REQUESTED, "WhenIdle", "please")
    world.run(1200)
    (found,) = world.maintenances()
    assert found["status"]["phase"] == "Completed"
    world.story.judge()
