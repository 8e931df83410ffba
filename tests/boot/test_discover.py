"""Unknown machines become Servers: once, slowly, in bounds, and not while the API server is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from provisioner.api.discovery import MAX_UNKNOWN_SERVERS, Claims
from provisioner.api.errors import Conflict, Refused, Retryable
from provisioner.api.values import MacAddress
from provisioner.boot.observe.discover import CREATED_AT_ONCE, Discoverer
from provisioner.boot.observe.server_index import ServerIndex
from tests.boot.fake_source import FakeSource
from tests.boot.objects import rack, server


@dataclass
class FakeCluster:
    trouble: list[Exception] = field(default_factory=list)
    created: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[Mapping[str, Any]] = field(default_factory=list)

    def create(self, type: Any, body: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
        if self.trouble:
            raise self.trouble.pop(0)
        self.created.append(body)
        return body

    def apply_status(self, kind: Any, name: str, status: Mapping[str, Any], *, manager: str) -> None:
        self.statuses.append(status)


@dataclass
class World:
    cluster: FakeCluster
    servers: FakeSource
    discoverer: Discoverer


class Silent:
    def record(self, regarding: Mapping[str, Any], type: Any, reason: str, message: str) -> None: ...  # noqa: A002


@pytest.fixture
def world() -> Iterator[World]:
    cluster, servers = FakeCluster(), FakeSource()
    index = ServerIndex(servers)
    index.attach()
    discoverer = Discoverer(cluster, index, FakeSource(rack()), Silent())  # type: ignore[arg-type]
    stop = threading.Event()
    thread = threading.Thread(target=discoverer.run, args=(stop,))
    thread.start()
    yield World(cluster, servers, discoverer)
    stop.set()
    discoverer.wake()
    thread.join(60)
    assert not thread.is_alive()


def claims(number: int = 1, **said: Any) -> Claims:
    return Claims(mac=MacAddress(f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}"), **said)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_machine_becomes_a_pending_server_in_its_rack(world: World) -> None:
    assert world.discoverer.offer(claims(source_address="10.80.0.200", serial_number="S1")) == "unknown-525400000001"
    wait_until(lambda: len(world.cluster.statuses) == 1)
    (body,) = world.cluster.created
    assert body["spec"]["acceptance"] == "Pending"
    assert (body["spec"]["rackRef"], body["spec"]["subnetName"]) == ("r01", "boot")
    assert "serialNumber" not in body["spec"], "what a stranger says occupies nothing"
    assert "status" not in body
    assert world.cluster.statuses[0]["discovery"]["serialNumber"] == "S1"


def test_what_is_asked_for_again_is_created_once(world: World) -> None:
    world.cluster.trouble = [Retryable("connection refused", after_seconds=0.2)]
    for _ in range(5):
        world.discoverer.offer(claims())
    wait_until(lambda: len(world.cluster.statuses) == 1)
    assert len(world.cluster.created) == 1


def test_while_the_api_server_is_away_the_trouble_is_known_and_nothing_is_lost(world: World) -> None:
    world.cluster.trouble = [Retryable("connection refused", after_seconds=0.5)] * 2
    world.discoverer.offer(claims())
    wait_until(lambda: world.discoverer.trouble == "connection refused")
    wait_until(lambda: len(world.cluster.created) == 1)
    wait_until(lambda: world.discoverer.trouble is None)


def test_another_boot_host_may_be_faster(world: World) -> None:
    world.cluster.trouble = [Conflict("exists")]
    world.discoverer.offer(claims(1))
    world.discoverer.offer(claims(2))
    wait_until(lambda: len(world.cluster.created) == 1)
    assert world.cluster.created[0]["metadata"]["name"] == "unknown-525400000002"


def test_what_the_api_server_refuses_is_dropped_and_the_next_goes_on(world: World) -> None:
    world.cluster.trouble = [Refused("policy says no", hint="ask")]
    world.discoverer.offer(claims(1))
    world.discoverer.offer(claims(2))
    wait_until(lambda: len(world.cluster.created) == 1)


def test_a_flood_of_machines_is_recorded_slowly_and_in_bounds(world: World) -> None:
    """A neighbour invents MAC addresses: neither memory nor etcd fills, and those that were there first stay."""
    refused = 0
    for number in range(4 * MAX_UNKNOWN_SERVERS):
        try:
            world.discoverer.offer(claims(number))
        except Refused:
            refused += 1
    assert refused > 0
    assert len(world.discoverer._offered) <= MAX_UNKNOWN_SERVERS
    wait_until(lambda: len(world.cluster.created) >= CREATED_AT_ONCE)
    assert len(world.cluster.created) < MAX_UNKNOWN_SERVERS / 2


def test_when_many_wait_already_no_more_are_taken(world: World) -> None:
    for number in range(MAX_UNKNOWN_SERVERS):
        world.servers.put(
            server(f"unknown-{number:012x}", boot_mac_address=claims(number).mac, acceptance="Pending", rack_ref=None)
        )
    with pytest.raises(Refused, match="wait already"):
        world.discoverer.offer(claims(60_000))
    world.servers.remove("unknown-000000000007")
    assert world.discoverer.offer(claims(60_000)) == "unknown-52540000ea60"


def test_machines_that_wait_are_not_counted_anew_for_each_that_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks is a stranger: an answer must not cost a walk over the fleet."""
    for number in range(MAX_UNKNOWN_SERVERS - 1):
        world.servers.put(
            server(f"unknown-{number:012x}", boot_mac_address=claims(number).mac, acceptance="Pending", rack_ref=None)
        )

    def items() -> list[dict[str, Any]]:
        raise AssertionError("the fleet was walked over")

    monkeypatch.setattr(world.servers, "items", items)
    world.discoverer.offer(claims(60_000))


def test_who_was_offered_already_is_told_so_while_no_more_are_taken(world: World) -> None:
    world.cluster.trouble = [Retryable("connection refused", after_seconds=60)]
    name = world.discoverer.offer(claims(60_000))
    wait_until(lambda: world.discoverer.trouble is not None)
    for number in range(MAX_UNKNOWN_SERVERS):
        world.servers.put(
            server(f"unknown-{number:012x}", boot_mac_address=claims(number).mac, acceptance="Pending", rack_ref=None)
        )
    assert world.discoverer.offer(claims(60_000)) == name
    with pytest.raises(Refused, match="wait already"):
        world.discoverer.offer(claims(60_001))


def test_who_was_accepted_or_removed_waits_no_more() -> None:
    servers = FakeSource(
        server("unknown-1", acceptance="Pending", rack_ref=None), server("r01-u09", acceptance="Pending")
    )
    index = ServerIndex(servers)
    index.attach()
    assert index.count_waiting() == 1, "a registered server that is Pending is no unknown machine"
    servers.put(server("unknown-1", acceptance="Accepted"))
    assert index.count_waiting() == 0
    servers.put(server("unknown-2", acceptance="Pending"))
    servers.remove("unknown-2")
    assert index.count_waiting() == 0
