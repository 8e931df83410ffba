"""One object of a kind that an older CRD let in, among a fleet of good ones: the others are shown all the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.web.conftest import served
from tests.web.made_up_fleet import NOON, maintenance_of, make_fleet, row_in
from tests.web.test_follow import World

BAD = "r01-u36"


def spoil_server(world: World) -> None:
    body = copy.deepcopy(world.source("servers").get(BAD))
    assert body is not None
    body["spec"]["position"] = 36
    body["status"]["conditions"] = ["Ready"]
    world.source("servers").put(body)


def spoil_maintenance(world: World) -> None:
    server = world.source("servers").get(BAD)
    assert server is not None
    body: dict[str, Any] = copy.deepcopy(maintenance_of(server, NOON, phase="Waiting"))
    body["spec"]["requestors"] = 7
    world.source("maintenances").put(body)


@pytest.mark.parametrize("spoil", [spoil_server, spoil_maintenance])
def test_a_fleet_with_one_object_that_cannot_be_read_is_shown_but_for_it(spoil: Any) -> None:
    world = World(48)
    names = {body["metadata"]["name"] for body in world.source("servers").items()}
    assert BAD in names
    spoil(world)
    for _ in range(3):
        world.follower.step()
    assert world.follower.is_caught_up
    shown = {row.name for row in world.fleet.rows()}
    assert shown == names, "also the one of which little can be read"
    assert row_in(world.fleet, "r06-u36") is not None


@pytest.mark.parametrize("spoil", [spoil_server, spoil_maintenance])
def test_what_changes_at_the_same_moment_is_told_all_the_same(spoil: Any) -> None:
    world = World(48)
    world.follower.step()
    spoil(world)
    world.change("r06-u36", "Held")
    world.follower.step()
    row = row_in(world.fleet, "r06-u36")
    assert row is not None
    assert row.state == "held"
    assert world.broadcast.told[-1][0]["rows"][-1][0] == "r06-u36"


def test_pages_of_pools_and_maintenances_show_all_but_the_one_that_cannot_be_read() -> None:
    fleet = make_fleet(48)
    bad_pool = copy.deepcopy(fleet.pools[0]) | {"metadata": {"name": "odd"}, "spec": {"imageRef": 7}}
    bad_maintenance = {"metadata": {"name": "odd"}, "spec": {"serverRef": "r01-u36", "requestors": 7}, "status": {}}
    fleet.pools.append(bad_pool)
    fleet.maintenances.append(bad_maintenance)
    site = served(fleet)
    site.service.follower.step()
    visitor = site.service.app.test_client()

    def page(path: str) -> str:
        answer = visitor.get(path, headers={"Host": "127.0.0.1"})
        assert answer.status_code == 200, (path, answer.text)
        return answer.text

    assert "/pools/gpu" in page("/pools")
    assert "gpu" in page("/pools/gpu")
    assert "/maintenances/" in page("/maintenances?which=all")
    assert BAD in page(f"/servers/{BAD}")
