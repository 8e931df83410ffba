"""Unknown machines become Servers: once, slowly, in bounds, and not while the API server is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.api import ObjectMeta, Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Conflict, Refused, Retryable
from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.discovery import MAX_WAITING_IN_SUBNET, Claims, RackPlace, discovered_server
from provisioner.api.servers.rack import Subnet
from provisioner.api.servers.server import Discovery
from provisioner.boot.observe.discover import CREATED_AT_ONCE, Discoverer
from provisioner.boot.observe.server_index import ServerIndex
from tests.boot.fake_source import FakeSource
from tests.boot.objects import rack, server
from tests.cluster.fake_events import FakeEvents


@dataclass
class FakeCluster:
    trouble: list[Exception] = field(default_factory=list)
    created: list[dict[str, Any]] = field(default_factory=list)
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What other boot hosts made, which no cache shows yet."""
    statuses: list[Mapping[str, Any]] = field(default_factory=list)

    def create(self, type: Any, body: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
        if trouble := self.trouble:
            raise trouble.pop(0)
        self.created.append(body)
        return {**body, "metadata": {**body["metadata"], "resourceVersion": "1"}}

    def get(self, type: Any, name: str) -> dict[str, Any]:  # noqa: A002
        return self.others[name]

    def apply_status(
        self, kind: Any, name: str, status: Mapping[str, Any], *, manager: str, resource_version: str | None = None
    ) -> None:
        self.statuses.append(status)


def rack_of(name: str, cidr: str, *, discovery: bool) -> Rack:
    network = cidr.rpartition(".")[0]
    lent = (f"{network}.200", f"{network}.250") if discovery else (None, None)
    subnet = Subnet(name="boot", cidr=cidr, discovery_range_start=lent[0], discovery_range_end=lent[1])
    return replace(rack(subnets=(subnet,)), metadata=ObjectMeta(name=name))


RACKS = (
    rack_of("r01", "10.80.0.0/24", discovery=True),
    rack_of("r02", "10.81.0.0/24", discovery=False),
    rack_of("r03", "10.83.0.0/24", discovery=True),
)


@dataclass
class World:
    cluster: FakeCluster
    servers: FakeSource
    racks: FakeSource
    discoverer: Discoverer


@pytest.fixture
def world() -> Iterator[World]:
    cluster, servers, racks = FakeCluster(), FakeSource(), FakeSource(*RACKS)
    index = ServerIndex(servers)
    index.attach()
    discoverer = Discoverer(cluster, index, racks, FakeEvents())  # type: ignore[arg-type]
    stop = threading.Event()
    thread = threading.Thread(target=discoverer.run, args=(stop,))
    thread.start()
    yield World(cluster, servers, racks, discoverer)
    stop.set()
    discoverer.wake()
    thread.join(60)
    assert not thread.is_alive()


def claims(number: int = 1, **said: Any) -> Claims:
    return Claims(mac=mac_of(number), **{"source_address": "10.80.0.200", **said})


def mac_of(number: int) -> MacAddress:
    return MacAddress(f"52:54:00:00:{number >> 8:02x}:{number & 255:02x}")


def waits(number: int, rack_name: str = "r01") -> Server:
    """A discovered Server, as the cache has it."""
    name = f"unknown-{number:012x}"
    return server(name, boot_mac_address=mac_of(number), acceptance="Pending", rack_ref=rack_name, subnet_name="boot")


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
    world.cluster.trouble = [Retryable("connection refused", after_seconds=0.05)] * 10_000
    world.discoverer.offer(claims())
    wait_until(lambda: world.discoverer.trouble == "connection refused")
    world.cluster.trouble = []
    wait_until(lambda: len(world.cluster.created) == 1)
    wait_until(lambda: world.discoverer.trouble is None)


def test_another_boot_host_may_be_faster(world: World) -> None:
    world.cluster.trouble = [Conflict("exists")]
    theirs = discovered_server(claims(1), place=RackPlace("r01", "boot"), now=datetime.now(UTC))
    world.cluster.others["unknown-525400000001"] = encode(theirs)
    world.discoverer.offer(claims(1))
    world.discoverer.offer(claims(2))
    wait_until(lambda: len(world.cluster.created) == 1)
    assert world.cluster.created[0]["metadata"]["name"] == "unknown-525400000002"


def test_what_a_machine_said_is_written_though_its_server_was_made_by_one_who_died(world: World) -> None:
    world.cluster.trouble = [Conflict("exists")]
    theirs = encode(discovered_server(claims(1), place=RackPlace("r01", "boot"), now=datetime.now(UTC)))
    bare = {key: value for key, value in theirs.items() if key != "status"}
    world.cluster.others["unknown-525400000001"] = {**bare, "metadata": {**bare["metadata"], "resourceVersion": "7"}}
    world.discoverer.offer(claims(1, serial_number="S1"))
    wait_until(lambda: len(world.cluster.statuses) == 1)
    assert world.cluster.statuses[0]["discovery"]["serialNumber"] == "S1"
    assert world.cluster.created == []


def test_what_the_api_server_refuses_is_dropped_and_the_next_goes_on(world: World) -> None:
    world.cluster.trouble = [Refused("policy says no", hint="ask")]
    world.discoverer.offer(claims(1))
    world.discoverer.offer(claims(2))
    wait_until(lambda: len(world.cluster.created) == 1)


def test_a_flood_of_machines_is_recorded_slowly_and_in_bounds(world: World) -> None:
    """A neighbour invents MAC addresses: neither memory nor etcd fills, and those that were there first stay."""
    refused = 0
    for number in range(4 * MAX_WAITING_IN_SUBNET):
        try:
            world.discoverer.offer(claims(number))
        except Refused:
            refused += 1
    assert refused > 0
    assert len(world.discoverer._offered) <= MAX_WAITING_IN_SUBNET
    wait_until(lambda: len(world.cluster.created) >= CREATED_AT_ONCE)
    assert len(world.cluster.created) < MAX_WAITING_IN_SUBNET / 2


def test_when_many_wait_already_no_more_are_taken(world: World) -> None:
    for number in range(MAX_WAITING_IN_SUBNET):
        world.servers.put(waits(number))
    with pytest.raises(Refused, match="wait already"):
        world.discoverer.offer(claims(60_000))
    world.servers.remove("unknown-000000000007")
    assert world.discoverer.offer(claims(60_000)) == "unknown-52540000ea60"


def test_a_server_that_was_just_made_counts_before_the_cache_shows_it_and_once_when_it_does(world: World) -> None:
    for number in range(MAX_WAITING_IN_SUBNET - 2):
        world.servers.put(waits(number))
    for number in (60_000, 60_001):
        world.discoverer.offer(claims(number))
    wait_until(lambda: len(world.cluster.statuses) == 2 and not world.discoverer._offered)
    with pytest.raises(Refused, match="wait already"):
        world.discoverer.offer(claims(60_002))
    world.servers.put(replace(waits(60_000), metadata=ObjectMeta(name="unknown-52540000ea60")))
    world.servers.remove("unknown-000000000007")
    assert world.discoverer.offer(claims(60_002)), (
        "of those that were made one is counted in the cache, and one is gone"
    )


def test_machines_that_wait_are_not_counted_anew_for_each_that_asks(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks is a stranger: an answer must not cost a walk over the fleet."""
    for number in range(MAX_WAITING_IN_SUBNET - 1):
        world.servers.put(waits(number))

    def items() -> list[dict[str, Any]]:
        raise AssertionError("the fleet was walked over")

    monkeypatch.setattr(world.servers, "items", items)
    world.discoverer.offer(claims(60_000))


def test_who_was_offered_already_is_told_so_while_no_more_are_taken(world: World) -> None:
    world.cluster.trouble = [Retryable("connection refused", after_seconds=60)]
    name = world.discoverer.offer(claims(60_000))
    wait_until(lambda: world.discoverer.trouble is not None)
    for number in range(MAX_WAITING_IN_SUBNET):
        world.servers.put(waits(number))
    assert world.discoverer.offer(claims(60_000)) == name
    with pytest.raises(Refused, match="wait already"):
        world.discoverer.offer(claims(60_001))


def test_who_was_accepted_or_removed_waits_no_more() -> None:
    servers = FakeSource(waits(1), server("r01-u09", acceptance="Pending"))
    index, place = ServerIndex(servers), RackPlace("r01", "boot")
    index.attach()
    assert index.count_waiting(place) == (1, 1), "a registered server that is Pending is no unknown machine"
    servers.put(replace(waits(1), spec=replace(waits(1).spec, acceptance="Accepted")))
    assert index.count_waiting(place) == (0, 0)
    servers.put(waits(2))
    servers.put(waits(3, "r02"))
    assert (index.count_waiting(place), index.count_waiting(RackPlace("r02", "boot"))) == ((1, 2), (1, 2))
    servers.remove("unknown-000000000002")
    assert index.count_waiting(place) == (0, 1)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("10.82.0.7", "10.82.0.7, which is in no subnet with a discovery range"),
        ("10.81.0.7", "10.81.0.7, which is in no subnet with a discovery range"),
        (None, "asks from nowhere"),
        ("10.80.0.21", "10.80.0.21, which is a registered server's"),
    ],
)
def test_who_asks_from_elsewhere_is_not_recorded(world: World, source: str | None, words: str) -> None:
    """A stranger anywhere, a subnet without a discovery range, a pod on a node of the very subnet."""
    world.servers.put(server("r01-u01"))
    with pytest.raises(Refused, match=words):
        world.discoverer.offer(claims(60_000, source_address=source))
    assert world.discoverer.offer(claims(60_000)), "from the subnet itself it is"


def test_a_subnet_that_gets_a_discovery_range_counts_at_once(world: World) -> None:
    world.racks.put(rack_of("r02", "10.81.0.0/24", discovery=True))
    assert world.discoverer.offer(claims(source_address="10.81.0.7"))


def test_a_full_subnet_does_not_hinder_another_one(world: World) -> None:
    for number in range(MAX_WAITING_IN_SUBNET):
        world.servers.put(waits(number))
    with pytest.raises(Refused, match="wait already in its subnet"):
        world.discoverer.offer(claims(60_000))
    assert world.discoverer.offer(claims(60_000, source_address="10.83.0.7"))


def test_a_machine_that_asked_by_dhcp_is_recorded_where_others_fetched_the_subnet_full(world: World) -> None:
    for number in range(MAX_WAITING_IN_SUBNET):
        world.servers.put(waits(number))
    world.discoverer.heard(mac_of(60_000))
    with pytest.raises(Refused):
        world.discoverer.offer(claims(60_001))
    assert world.discoverer.offer(claims(60_000))
    wait_until(lambda: len(world.cluster.statuses) == 1)
    assert "dhcpTime" in world.cluster.statuses[0]["discovery"]


def test_one_that_is_heard_only_after_it_was_recorded_is_marked_once(world: World) -> None:
    recorded = waits(7)
    discovery = Discovery(serial_number="S7")
    metadata = replace(recorded.metadata, resource_version="5")
    world.servers.put(replace(recorded, metadata=metadata, status=replace(recorded.status, discovery=discovery)))
    world.servers.put(server("r01-u07", boot_mac_address=mac_of(8), acceptance="Pending"))
    for _ in range(3):
        world.discoverer.heard(mac_of(7))
        world.discoverer.heard(mac_of(8))
    wait_until(lambda: len(world.cluster.statuses) == 1)
    marked = world.cluster.statuses[0]["discovery"]
    assert (marked["serialNumber"], "dhcpTime" in marked) == ("S7", True)
    assert world.cluster.created == []


def test_who_invents_dhcp_requests_fills_no_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.boot.observe.discover.MAX_HEARD", 64)
    for number in range(1000):
        world.discoverer.heard(mac_of(number))
    assert len(world.discoverer._heard) == 64
