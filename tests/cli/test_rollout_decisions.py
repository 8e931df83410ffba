"""What a person decides by `kubectl provision rollout`, carried out by the real controllers on a simulated fleet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from provisioner.api import Image, NodePool, Server
from provisioner.cli.rollout import changes
from provisioner.cli.rollout.pool_view import PoolView, read_view
from provisioner.cli.rollout.screen import count_looks, render_rollout, state_of
from provisioner.cli.rollout.watching import outcome
from provisioner.cluster.resources import of
from tests.maintenance.chaos.fake_machine import Habit
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.world import NEW, OLD, World
from tests.rollout.test_rollout_of_a_fleet import HOUR, begin, images, spoil, status

pytestmark = pytest.mark.slow


def view_of(world: World) -> PoolView:
    return read_view(world.cluster, world.cluster.read(NodePool, world.pool_name), world.clock.now)


def decide(world: World, decision: Callable[[PoolView], changes.PoolChange]) -> changes.PoolChange:
    """As the command does it."""
    body = world.cluster.get(of(NodePool), world.pool_name)
    change = decision(view_of(world))
    world.cluster.patch_seen(of(NodePool), body, change.fields, manager="kubectl-provision")
    world.history.pool_images.append((world.clock.now, world.cluster.read(NodePool, world.pool_name).spec.image_ref))
    return change


def start(world: World, name: str) -> changes.PoolChange:
    image = world.cluster.read(Image, world.images[name])
    return decide(world, lambda view: changes.begin(view, image.name, image))


def until_it_stops(world: World) -> None:
    world.run(12 * HOUR, until=lambda: status(world).rollout.stopped is not None)
    assert outcome(view_of(world)) == 4


def test_one_who_waits_is_let_go_when_it_is_complete_and_not_by_the_rollout_before() -> None:
    world = begin()
    start(world, NEW)
    assert outcome(view_of(world)) is None, "nobody has taken it up yet"
    world.run(12 * HOUR, until=lambda: outcome(view_of(world)) is not None)
    assert outcome(view_of(world)) == 0
    assert images(world) == [world.images[NEW]] * 3
    start(world, OLD)
    assert outcome(view_of(world)) is None, "that the one before is complete says nothing of this one"


def test_what_failed_is_tried_again_once_a_person_says_so_in_the_very_second_of_the_stop() -> None:
    world = begin()
    spoil(world, NEW, "never returns")
    start(world, NEW)
    until_it_stops(world)
    failed = view_of(world).named("Failed")
    assert [standing.server.name for standing in failed] == world.names[:1]
    for machine in world.machines.values():
        machine.spoiled.clear()
    change = decide(world, changes.resume)
    assert change.question is not None
    assert world.names[0] in change.question
    assert outcome(view_of(world)) is None, "the stop on record is the one before the decision"
    world.run(24 * HOUR, until=lambda: outcome(view_of(world)) is not None)
    assert outcome(view_of(world)) == 0
    assert images(world) == [world.images[NEW]] * 3


def test_undo_of_one_that_stopped_brings_back_who_had_gone_and_touches_nobody_else() -> None:
    world = begin()
    habit: Habit = "checks fail"
    spoil(world, NEW, habit)
    start(world, NEW)
    until_it_stops(world)
    way_back = changes.find_way_back(world.cluster.read(NodePool, world.pool_name))
    assert way_back == world.images[OLD]
    image = world.cluster.read(Image, way_back)
    change = decide(world, lambda view: changes.undo(view, way_back, image))
    assert "1 server has to go back, 2 never left" in change.words[0]
    world.run(HOUR)
    assert images(world) == [world.images[OLD]] * 3
    assert [machine.boots for machine in world.machines.values()][1:] == [0, 0]


def test_a_pause_closes_nobody_and_a_server_on_its_way_arrives() -> None:
    world = begin(servers=4, max_parallel=1)
    world.start_job(FakeJob("long", (world.names[3],)))
    start(world, NEW)
    world.run(12 * HOUR, until=lambda: any(state_of(s) == "Updating" for s in view_of(world).standings.values()))
    change = decide(world, changes.pause)
    assert any("on the way already, and to its end" in words for words in change.words)
    world.run(4 * HOUR)
    assert images(world).count(world.images[NEW]) == 1
    assert "kubectl provision rollout resume" in render_rollout(view_of(world))
    decide(world, changes.resume)
    world.run(4 * HOUR)
    assert images(world).count(world.images[NEW]) == 3, "the fourth waits for its job"


def test_the_screen_counts_as_the_controller_does() -> None:
    world = begin(servers=4, max_parallel=1)
    world.start_job(FakeJob("long", (world.names[3],)))
    world.cluster.patch(of(Server), world.names[2], {"spec": {"upgrades": "Excluded"}}, manager="kubectl")
    start(world, NEW)
    for _ in range(40):
        world.run(60)
        found, said = view_of(world), status(world)
        assert found.is_observed
        counted = count_looks(found.standings.values())
        assert counted == Counter(
            Updated=said.updated, Updating=said.updating, Outdated=said.waiting, Excluded=said.left_alone,
            Failed=said.failed,
        )  # fmt: skip
    assert counted == Counter(Updated=2, Outdated=1, Excluded=1)
