"""Which servers a change makes the executor look at."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.cluster.source import KeysOf
from provisioner.maintenance.follow import MaintenanceInformers, follow
from tests.cluster.scanned_index import ScannedIndex


class FakeCache:
    """A cache that the test fills and changes."""

    has_synced = True

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.watchers: list[Any] = []

    def get(self, name: str) -> dict[str, Any] | None:
        return self.objects.get(name)

    def items(self) -> list[dict[str, Any]]:
        return list(self.objects.values())

    def index(self, keys_of: KeysOf) -> ScannedIndex:
        return ScannedIndex(self.items, keys_of)

    def subscribe(self, watcher: Any) -> None:
        self.watchers.append(watcher)

    def put(self, name: str, body: dict[str, Any] | None) -> None:
        old = self.objects.pop(name, None)
        if body is not None:
            self.objects[name] = body
        for watcher in self.watchers:
            watcher(name, old, body)


@pytest.fixture
def caches() -> dict[str, FakeCache]:
    return {key: FakeCache() for key in ("servers", "pools", "images", "nodes", "maintenances", "pods")}


@pytest.fixture
def added(caches: dict[str, FakeCache]) -> list[str]:
    found: list[str] = []
    for name in ("a", "b"):
        caches["servers"].put(name, {"spec": {"nodePoolRef": "gpu"}})
    caches["maintenances"].put("a-1", {"spec": {"serverRef": "a"}, "status": {"phase": "Rebooting"}})
    caches["maintenances"].put("b-1", waiting("b", 0))
    caches["nodes"].put("a", {"metadata": {"uid": "1"}, "status": {"conditions": [heartbeat(0)]}})
    follow(MaintenanceInformers(**caches), found.append)  # type: ignore[arg-type]
    return found


def waiting(server: str, created: int) -> dict[str, Any]:
    """A Maintenance that waits for the budget alone."""
    return {
        "metadata": {
            "name": f"{server}-1",
            "creationTimestamp": f"2026-01-02T03:{created // 60:02}:{created % 60:02}Z",
        },
        "spec": {"serverRef": server},
        "status": {"phase": "Waiting", "blockers": [{"kind": "Budget", "name": "gpu"}]},
    }


def heartbeat(number: int) -> dict[str, Any]:
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": str(number)}


def test_a_slot_that_becomes_free_wakes_those_who_wait_for_it(caches: dict[str, FakeCache], added: list[str]) -> None:
    caches["maintenances"].put("a-1", {"spec": {"serverRef": "a"}, "status": {"phase": "Completed"}})
    assert added == ["a", "b"]


def test_of_many_who_wait_for_a_slot_those_are_woken_whose_turn_it_is(
    caches: dict[str, FakeCache], added: list[str]
) -> None:
    for number in range(1, 200):
        caches["servers"].put(f"s{number}", {"spec": {"nodePoolRef": "gpu"}})
        caches["maintenances"].put(f"s{number}-1", waiting(f"s{number}", number))
    added.clear()
    caches["maintenances"].put("a-1", {"spec": {"serverRef": "a"}, "status": {"phase": "Failed"}})
    assert added[:3] == ["a", "b", "s1"]
    assert len(added) < 30


def test_heartbeats_wake_nobody(caches: dict[str, FakeCache], added: list[str]) -> None:
    caches["nodes"].put("a", {"metadata": {"uid": "1"}, "status": {"conditions": [heartbeat(1)]}})
    assert added == []


def test_a_request_on_a_node_wakes_its_server(caches: dict[str, FakeCache], added: list[str]) -> None:
    asked = {"type": "provisioner.dev/RebootRequested", "status": "True"}
    caches["nodes"].put("a", {"metadata": {"uid": "1"}, "status": {"conditions": [heartbeat(0), asked]}})
    assert added == ["a"]


def test_a_pod_that_comes_to_a_server_wakes_what_waits_there_so_that_it_is_warned_of_a_deadline(
    caches: dict[str, FakeCache], added: list[str]
) -> None:
    caches["pods"].put("ml/x", {"spec": {}, "status": {"phase": "Pending"}})
    added.clear()
    caches["pods"].put("ml/x", {"spec": {"nodeName": "b"}, "status": {"phase": "Pending"}})
    assert added == ["b"]
    added.clear()
    caches["pods"].put("ml/x", {"spec": {"nodeName": "b"}, "status": {"phase": "Running"}})
    assert added == []


def test_the_end_of_a_pod_wakes_the_server_that_waits_for_it(caches: dict[str, FakeCache], added: list[str]) -> None:
    caches["pods"].put("ml/x", {"spec": {"nodeName": "b"}, "status": {"phase": "Running"}})
    assert added == []
    caches["pods"].put("ml/x", {"spec": {"nodeName": "b"}, "status": {"phase": "Succeeded"}})
    assert added == ["b"]


def test_a_pool_or_an_image_that_changes_wakes_those_who_wait(caches: dict[str, FakeCache], added: list[str]) -> None:
    caches["pools"].put("gpu", {"spec": {"imageRef": "new"}})
    caches["images"].put("new", {"status": {"conditions": [{"type": "Available", "status": "True"}]}})
    assert sorted(added) == ["a", "a", "b", "b"]
