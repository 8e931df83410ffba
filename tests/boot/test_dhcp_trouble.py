"""What DHCP meets that a person must mend becomes Events and one line of counts."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from provisioner.api.machinery.values import MacAddress
from provisioner.boot.dhcp import Observation
from provisioner.boot.dhcp.responder.tally import Tally
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.host import dhcp_feed
from provisioner.boot.host.dhcp_feed import DhcpFeed
from provisioner.boot.host.dhcp_trouble import COUNT_SECONDS, REPEAT_SECONDS, STANDING_SECONDS, DhcpTrouble
from provisioner.boot.observe.progress import ProgressReport
from tests.boot.dhcp.messages import address, message, rack, server, subnet
from tests.boot.dhcp.relay import RELAY_ADDRESS, SERVER_ADDRESS, Relay, config, wait_until
from tests.boot.fake_source import FakeSource

HOME, AWAY = "52:54:00:00:00:21", "52:54:00:00:00:22"
SEEN = Observation(mac_address=MacAddress(HOME), kind="Declined", server="r01-u01", rack="r01", subnet="boot",
                   address="10.80.0.21")  # fmt: skip


@dataclass
class FakeRecorder:
    """Keeps Events and counts what is observed, as the recorders would."""

    events: list[tuple[str, str, str, str]] = field(default_factory=list)
    observed: list[ProgressReport] = field(default_factory=list)

    def record(self, regarding: Mapping[str, Any], type: Any, reason: str, message: str) -> None:  # noqa: A002
        self.events.append((f"{regarding['kind']}/{regarding['metadata']['name']}", type, reason, message))

    def observe(self, report: ProgressReport) -> bool:
        self.observed.append(report)
        return True

    def reasons(self) -> list[tuple[str, str]]:
        return [(about, reason) for about, _, reason, _ in self.events]


@dataclass
class FakeDhcp:
    """What the responder says of itself."""

    counted: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)

    def tally(self) -> Tally:
        return Tally(defaultdict(int, self.counted))

    def problems(self) -> dict[str, str]:
        return dict(self.wrong)


@dataclass
class World:
    now: float = 0.0
    told: FakeRecorder = field(default_factory=FakeRecorder)
    dhcp: FakeDhcp = field(default_factory=FakeDhcp)

    def __post_init__(self) -> None:
        objects: dict[str, FakeSource] = {"Rack": FakeSource(rack()), "Server": FakeSource(server())}
        self.trouble = DhcpTrouble(self.told, lambda kind, name: objects[kind].get(name), monotonic=lambda: self.now)

    def look_after(self, seconds: float) -> None:
        self.now += seconds
        self.trouble.look(self.dhcp)


@pytest.mark.programs
def test_a_declined_address_and_a_wrong_subnet_asked_over_the_wire_are_warnings_on_the_servers() -> None:
    told = FakeRecorder()
    racks = FakeSource(
        rack("r01", subnet(cidr="127.80.0.0/24", gateway=SERVER_ADDRESS)), rack("r02", subnet(cidr="127.81.0.0/24"))
    )
    servers = FakeSource(
        server("r01-u01", HOME, "127.80.0.21"), server("r02-u01", AWAY, "127.81.0.21", rack_name="r02")
    )
    settings = config(workers=1)
    feed = DhcpFeed(settings, told, told, servers, racks, told)  # type: ignore[arg-type]
    stop = threading.Event()
    thread = threading.Thread(target=feed.run, args=(stop,))
    feed.start()
    thread.start()
    decline = message(opt.DECLINE, HOME, giaddr=RELAY_ADDRESS, options={
        opt.REQUESTED_ADDRESS: address("127.80.0.21"), opt.SERVER_IDENTIFIER: address(SERVER_ADDRESS)})  # fmt: skip
    discover = message(opt.DISCOVER, AWAY, giaddr=RELAY_ADDRESS)
    try:
        with Relay(settings) as relay:

            def told_both() -> bool:
                relay.send(decline)
                relay.send(discover)
                return len(told.events) >= 2

            wait_until(told_both, "nothing was told")
    finally:
        stop.set()
        thread.join()
        feed.stop()
    assert set(told.reasons()) == {("Server/r01-u01", "AddressDeclined"), ("Server/r02-u01", "WrongSubnet")}
    assert {type_ for _, type_, _, _ in told.events} == {"Warning"}
    words = {reason: words for _, _, reason, words in told.events}
    assert "127.80.0.21 in use in subnet 'boot' of Rack 'r01'" in words["AddressDeclined"]
    assert (
        "in subnet 'boot' of Rack 'r01', and its own 127.81.0.21 is of subnet 'boot' of Rack 'r02'"
        in words["WrongSubnet"]
    )
    assert told.observed == [], "neither is a stage of a boot"


def test_an_ipoib_client_is_told_on_its_rack_by_its_guid_once_a_minute() -> None:
    world = World()
    for number in range(5):
        told = f"GUID 0x0002c903000c781{number}"
        world.trouble.saw(replace(SEEN, kind="InfiniBand", server=None, client_identifier=told))
    (about, type_, reason, words), *more = world.told.events
    assert (about, type_, reason, more) == ("Rack/r01", "Warning", "InfiniBandNotServed", [])
    assert words.startswith(
        "an IPoIB client (GUID 0x0002c903000c7810) asks for an address in subnet 'boot': not served"
    )
    world.now += REPEAT_SECONDS
    world.trouble.saw(replace(SEEN, kind="InfiniBand", server=None, client_identifier="GUID 0x0002c903000c7811"))
    assert len(world.told.events) == 2


def test_the_same_trouble_of_a_server_is_told_once_a_minute() -> None:
    world = World()
    for _ in range(5):
        world.trouble.saw(SEEN)
    assert len(world.told.events) == 1
    world.now += REPEAT_SECONDS
    world.trouble.saw(SEEN)
    assert len(world.told.events) == 2
    assert world.told.events[0] == world.told.events[1], "the same words, so that the Event is counted"


def test_what_cannot_be_served_is_told_once_it_stands_and_again_once_it_reads_otherwise() -> None:
    world = World()
    world.dhcp.wrong = {"Server/r01-u01": "it is odd", "Rack/r01": "it is odder", "Server/gone": "nobody has it"}
    world.look_after(0)
    world.look_after(STANDING_SECONDS / 2)
    assert world.told.events == []
    for _ in range(3):
        world.look_after(STANDING_SECONDS)
    assert world.told.events == [
        ("Server/r01-u01", "Warning", "NotServedByDHCP", "it is odd"),
        ("Rack/r01", "Warning", "NotServedByDHCP", "it is odder"),
    ]
    world.dhcp.wrong = {"Server/r01-u01": "it is odd in another way"}
    world.look_after(1)
    world.look_after(STANDING_SECONDS)
    assert world.told.events[2:] == [("Server/r01-u01", "Warning", "NotServedByDHCP", "it is odd in another way")]


def test_a_problem_that_passes_at_once_is_not_told() -> None:
    world = World()
    for wrong in ({"Rack/r01": "a moment"}, {}, {"Rack/r01": "a moment"}, {}):
        world.dhcp.wrong = wrong
        world.look_after(STANDING_SECONDS * 0.9)
    assert world.told.events == []


def test_what_changed_in_a_minute_is_logged_as_one_line() -> None:
    world = World()
    with capture_logs() as lines:
        world.dhcp.counted = {"offered": 3, "dropped-unknown-relay": 2}
        world.look_after(COUNT_SECONDS / 2)
        assert lines == []
        world.look_after(COUNT_SECONDS / 2)
        world.dhcp.counted = {"offered": 3, "dropped-unknown-relay": 7}
        world.look_after(COUNT_SECONDS)
        world.look_after(COUNT_SECONDS)
    assert [(line["log_level"], line["more"]) for line in lines] == [
        ("info", {"dropped-unknown-relay": 2, "offered": 3}),
        ("info", {"dropped-unknown-relay": 5}),
    ]


def test_a_fault_does_not_end_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    told, racks = FakeRecorder(), FakeSource(rack("r01", subnet(cidr="127.80.0.0/24", gateway=SERVER_ADDRESS)))
    servers = FakeSource(server("r01-u01", HOME, "127.80.0.21"))
    feed = DhcpFeed(config(workers=1), told, told, servers, racks, told)  # type: ignore[arg-type]
    taken: list[list[str]] = []
    faults = {"replace": RuntimeError("a bad day"), "problems": RuntimeError("another")}

    class Faulty(FakeDhcp):
        def replace(self, racks: Any, servers: Any) -> None:
            if fault := faults.pop("replace", None):
                raise fault
            taken.append([server.name for server in servers])

        def problems(self) -> dict[str, str]:
            if fault := faults.pop("problems", None):
                raise fault
            return {}

    feed.dhcp = Faulty()  # type: ignore[assignment]
    monkeypatch.setattr(dhcp_feed, "_FIRST_PAUSE_SECONDS", 0.01)
    stop = threading.Event()
    thread = threading.Thread(target=feed.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: len(taken) == 2, "after a fault everything is told again")
    finally:
        stop.set()
        thread.join()
    assert taken == [["r01-u01"], ["r01-u01"]]
