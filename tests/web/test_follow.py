"""From changes to frames: bounded in rate and size, whatever happens in the fleet."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from typing import Any, cast

from provisioner.web.broadcast import Broadcast
from provisioner.web.caches import WebCaches, trim_node
from provisioner.web.fleet import Fleet
from provisioner.web.follow import ROWS_OF_FRAME, FleetFollower
from tests.web.fake_source import FakeSource, fake_caches
from tests.web.made_up_fleet import NOON, condition, maintenance_of, make_fleet, row_in


class FakeBroadcast(Broadcast):
    """Remembers what was told."""

    def __init__(self) -> None:
        super().__init__("e1")
        self.told: list[tuple[dict[str, Any], set[str]]] = []

    def publish(self, told: Any, topics: Any) -> None:
        self.told.append((json.loads(json.dumps(told)), set(topics)))
        super().publish(told, topics)


class World:
    def __init__(self, servers: int) -> None:
        made = make_fleet(servers)
        self.caches: WebCaches = fake_caches(
            racks=made.racks, servers=made.servers, pools=made.pools, maintenances=made.maintenances, nodes=made.nodes
        )
        self.fleet, self.broadcast = Fleet(), FakeBroadcast()
        self.follower = FleetFollower(self.caches, self.fleet, self.broadcast)

    def source(self, kind: str) -> FakeSource:
        return cast(FakeSource, getattr(self.caches, kind))

    def change(self, name: str, lifecycle: str) -> None:
        body = copy.deepcopy(self.source("servers").get(name))
        assert body is not None
        body["status"]["lifecycle"] = lifecycle
        self.source("servers").put(body)


def test_the_fleet_is_taken_in_whole_before_anything_is_told() -> None:
    world = World(3000)
    assert not world.follower.is_caught_up
    world.follower.step()
    assert world.follower.is_caught_up
    assert len(world.fleet.rows()) == 3000
    assert world.broadcast.told == []


def test_a_copy_that_is_not_complete_keeps_the_fleet_from_being_shown() -> None:
    world = World(8)
    world.source("nodes").has_synced = False
    world.follower.step()
    assert not world.follower.is_caught_up


def test_a_change_is_told_with_the_counts_and_the_topics_of_all_pages_that_show_it() -> None:
    world = World(48)
    world.follower.step()
    world.change("r06-u36", "Held")
    world.follower.step()
    ((told, topics),) = world.broadcast.told
    assert told["rows"] == [["r06-u36", "held", "=", "r06-u36: held by a person"]]
    assert told["counts"]["held"] == 2
    assert told["moved"] is False
    assert topics == {"servers/r06-u36", "racks/r06", "pools/gpu", "servers", "racks", "pools"}


def test_what_changed_ten_times_is_told_once_and_what_did_not_change_to_the_eye_is_no_row() -> None:
    world = World(48)
    world.follower.step()
    for state in ("Held", "Verified") * 5:
        world.change("r06-u36", state)
    world.change("r06-u31", "InProduction")
    world.follower.step()
    ((told, topics),) = world.broadcast.told
    assert [each[:2] for each in told["rows"]] == [["r06-u36", "kept"]]
    assert "servers/r06-u31" in topics, "its own page may show more of it"


def test_a_storm_is_told_in_bounded_frames_in_the_order_in_which_it_came() -> None:
    world = World(3 * ROWS_OF_FRAME + 8)
    world.follower.step()
    names = [body["metadata"]["name"] for body in world.source("servers").items()]
    for name in names:
        world.change(name, "Held")
    lefts = [world.follower.step() for _ in range(4)]
    assert lefts == [2 * ROWS_OF_FRAME + 8, ROWS_OF_FRAME + 8, 8, 0]
    frames = [told["rows"] for told, _ in world.broadcast.told]
    assert all(len(rows) <= ROWS_OF_FRAME for rows in frames)
    assert frames[0][0][0] == names[0]
    assert world.broadcast.told[-1][0]["left"] == 0
    assert world.follower.step() == 0
    assert len(world.broadcast.told) == 4, "nothing happened, nothing is told"


def test_new_and_gone_servers_change_the_layout() -> None:
    world = World(48)
    world.follower.step()
    world.source("servers").delete("r06-u36")
    world.follower.step()
    assert world.broadcast.told[-1][0]["moved"] is True
    assert row_in(world.fleet, "r06-u36") is None
    body = copy.deepcopy(world.source("servers").get("r06-u31"))
    assert body is not None
    body["spec"]["rackRef"] = "r05"
    world.source("servers").put(body)
    world.follower.step()
    told, topics = world.broadcast.told[-1]
    assert told["moved"] is True
    assert {"racks/r05", "racks/r06"} <= topics


def test_a_maintenance_is_told_of_its_server_and_of_itself() -> None:
    world = World(48)
    world.follower.step()
    body = copy.deepcopy(world.source("servers").get("r06-u36"))
    assert body is not None
    asked = maintenance_of(body, NOON, phase="Waiting", nextStep="claim it")
    world.source("maintenances").put(asked)
    world.change("r06-u36", "Maintenance")
    world.follower.step()
    told, topics = world.broadcast.told[-1]
    assert told["rows"][0][3] == "r06-u36: in maintenance. claim it"
    assert {"maintenances/r06-u36-1", "maintenances", "servers/r06-u36"} <= topics
    world.source("maintenances").delete("r06-u36-1")
    world.follower.step()
    assert "maintenances/r06-u36-1" in world.broadcast.told[-1][1]


def test_a_kubelet_that_says_nothing_new_makes_no_frame() -> None:
    world = World(48)
    world.follower.step()
    node = world.source("nodes").get("r06-u36")
    assert node is not None
    world.source("nodes").put(node)
    world.follower.step()
    assert world.broadcast.told == []
    world.source("nodes").put({**node, "spec": {"unschedulable": True}})
    world.follower.step()
    assert world.broadcast.told == [({}, {"servers/r06-u36", "servers"})]


def test_of_a_node_only_what_is_shown_is_kept() -> None:
    beat = condition("Ready", "True", "KubeletReady", "", NOON) | {"lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    node = {
        "metadata": {"name": "n", "resourceVersion": "7", "labels": {"a": "b"}, "annotations": {"secret": "x"}},
        "spec": {"podCIDR": "10.0.0.0/24", "unschedulable": True},
        "status": {"conditions": [beat], "images": [{}], "nodeInfo": {"bootID": "b", "kernelVersion": "6"}},
    }
    later = copy.deepcopy(node)
    later["status"]["conditions"][0]["lastHeartbeatTime"] = str(NOON + timedelta(minutes=5))  # type: ignore[index]
    assert trim_node(copy.deepcopy(node)) == trim_node(later)
    assert trim_node(node)["metadata"] == {"name": "n", "resourceVersion": "7", "annotations": {}}
    assert trim_node(node)["spec"] == {"unschedulable": True}
