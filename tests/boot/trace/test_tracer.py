"""What one boot host tells of traced machines: whose it is, how much of it, and until when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.api import Rack, Server
from provisioner.api.servers.trace import TRACE_ANNOTATION, trace_value
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.workers.protocol import TracedPacket
from provisioner.boot.observe.trace.followed import MOST_EVENTS, MOST_WAITING
from provisioner.boot.observe.trace.lines import LONGEST_LINE, SEPARATOR, line_at
from provisioner.boot.observe.trace.tracer import MOST_TRACES, MachineTracer
from tests.boot.dhcp.messages import message
from tests.boot.fake_source import FakeSource
from tests.boot.objects import NOON, rack, server

MAC, OTHER = "52:54:00:12:34:56", "52:54:00:12:34:99"
UNTIL = NOON + timedelta(minutes=15)


class FakeEvents:
    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def record(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:  # noqa: A002
        assert (type, reason) == ("Normal", "BootTraced")
        assert len(message) <= 1024, "what is longer is cut by the API server's limit"
        self.told.append((f"{regarding['kind']}/{regarding['metadata']['name']}", message))


class Host:
    """A boot host whose clocks are set by hand."""

    def __init__(self, folder: Path, *objects: Server | Rack) -> None:
        self.servers = FakeSource(*(each for each in objects if isinstance(each, Server)))
        self.racks = FakeSource(*(each for each in objects if isinstance(each, Rack)))
        self.events, self.log = FakeEvents(), folder / "access.json"
        self.log.write_text("")
        self.now, self.seconds = NOON, 0.0
        self.watched: list[frozenset[str]] = []
        self.tracer = MachineTracer(
            self.servers,
            self.racks,
            self.events,  # type: ignore[arg-type]
            host="boot1",
            access_log=self.log,
            watch=self.watched.append,
            now=lambda: self.now,
            monotonic=lambda: self.seconds,
        )
        self.tracer.attach()

    def turn(self, seconds: float = 1.0) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds
        self.tracer.turn()

    def hears(self, mac: str = MAC, verdict: str = "offered", **options: Any) -> None:
        self.tracer.heard_dhcp(TracedPacket(message(opt.DISCOVER, mac, **options), verdict, None))

    def logs(self, **changes: Any) -> None:
        line = {"time": "2026-01-02T12:00:01+00:00", "client": "10.80.0.21", "method": "GET", "path": "/boot.ipxe",
                "status": 200, "bytes": 4, "seconds": 0.001, "agent": "iPXE/1.21"} | changes  # fmt: skip
        with self.log.open("a") as log:
            log.write(json.dumps(line) + "\n")

    @property
    def lines(self) -> list[str]:
        return [line for _, text in self.events.told for line in text.removeprefix("[boot1] ").split(SEPARATOR)]


def asking(body: Server | Rack, until: datetime = UNTIL, *macs: str) -> Any:
    return replace(body, metadata=replace(body.metadata, annotations={TRACE_ANNOTATION: trace_value(until, macs)}))


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, asking(server()), server("r01-u02", boot_mac_address=OTHER))


def test_nobody_asks_nothing_is_watched_and_nothing_is_told(tmp_path: Path) -> None:
    host = Host(tmp_path, server())
    host.turn()
    host.hears()
    host.tracer.heard_tftp("dnsmasq-tftp[1]: sent /tftp/snponly.efi to 10.80.0.21")
    host.logs()
    host.turn()
    assert (host.watched, host.events.told, host.tracer._followed) == ([], [], {})


def test_packets_requests_and_transfers_of_the_machine_are_told_on_its_server(host: Host) -> None:
    host.turn()
    assert host.watched == [{MAC}]
    host.hears()
    host.tracer.heard_tftp("dnsmasq-tftp[1]: sent /tftp/snponly.efi to 10.80.0.21")
    host.logs()
    host.turn()
    assert {about for about, _ in host.events.told} == {"Server/r01-u01"}
    assert [line.partition(" ")[2] for line in host.lines] == [
        "follows 52:54:00:12:34:56 until 12:15:00",
        "DHCP DISCOVER by an operating system, -> offered, it is offered its own address",
        "TFTP sent /tftp/snponly.efi to 10.80.0.21",
        "HTTP GET /boot.ipxe from 10.80.0.21 -> 200, 4 bytes in 0.001 s (iPXE/1.21)",
    ]


def test_what_is_another_machines_is_not_told(host: Host) -> None:
    host.turn()
    host.hears(OTHER)
    host.tracer.heard_tftp("dnsmasq-tftp[1]: sent /tftp/snponly.efi to 10.80.0.210")
    host.tracer.heard_tftp("dnsmasq-tftp[1]: sent /tftp/snponly.efi to 10.80.0.2")
    host.logs(client="10.80.0.2")
    host.logs(client="110.80.0.21", path="/ipxe/52-54-00-12-34-99.ipxe")
    host.logs(client="10.80.0.9", agent="10.80.0.21")
    host.turn()
    assert len(host.lines) == 1, "but that it follows"


def test_the_script_of_its_mac_address_is_told_from_wherever_it_is_asked_for(host: Host) -> None:
    host.turn()
    host.logs(client="10.80.0.222", path="/ipxe/52-54-00-12-34-56.ipxe")
    host.turn()
    assert "from 10.80.0.222" in host.lines[-1]


def test_it_ends_by_the_clock_and_when_it_is_taken_back(host: Host) -> None:
    host.turn()
    host.turn((UNTIL - NOON).total_seconds())
    assert not host.tracer._followed
    host.servers.put(asking(server(), host.now + timedelta(minutes=5)))
    host.turn()
    assert host.tracer._followed
    host.servers.put(server())
    host.turn()
    assert host.watched == [{MAC}, frozenset(), {MAC}, frozenset()]
    host.hears()
    host.turn()
    assert not any("DISCOVER" in line for line in host.lines)


def test_a_neighbour_who_floods_with_the_mac_address_is_counted(host: Host) -> None:
    host.turn()
    for _ in range(100):
        for _ in range(60):
            host.hears()
        host.turn()
    assert len(host.events.told) <= 101, "one Event a second at most"
    assert len(host.lines) < 100 * 6, "a few lines a second"
    assert sum(int(line.split()[0]) for line in host.lines if "more were not told" in line) > 5_000


def test_a_trace_has_an_end_in_events_too(host: Host) -> None:
    host.turn()
    for _ in range(2 * MOST_EVENTS):
        host.hears()
        host.turn(1.0)
    assert len(host.events.told) == MOST_EVENTS
    assert host.lines[-1] == "this host tells no more: ask for another trace"


def test_what_waits_is_bounded(host: Host) -> None:
    host.turn()
    for _ in range(10_000):
        host.seconds += 1.0
        host.hears()
    (followed,) = host.tracer._followed.values()
    assert len(followed.waiting) <= MOST_WAITING


def test_many_who_ask_are_answered_in_turn(tmp_path: Path) -> None:
    servers = [
        asking(server(f"s{n:02}", boot_mac_address=f"52:54:00:00:00:{n:02x}"), UNTIL + timedelta(seconds=n))
        for n in range(MOST_TRACES + 5)
    ]
    host = Host(tmp_path, *servers)
    host.turn()
    assert len(host.watched[-1]) == MOST_TRACES
    assert {about for about, _ in host.events.told} == {f"Server/s{n:02}" for n in range(MOST_TRACES)}


def test_what_was_sent_cannot_write_into_a_terminal_or_another_line(host: Host) -> None:
    host.turn()
    nasty = b"\x1b]0;owned\x07 | [boot2] 12:00:00.000 \xe2\x80\xaefake\n"
    host.hears(options={opt.VENDOR_CLASS: nasty})
    host.logs(path="/ipxe/52-54-00-12-34-56.ipxe\x1b[2J | x\n\u202e" + "a" * 5000)
    host.logs(agent="\x1b[31m\u2028red | blue")
    host.tracer.heard_tftp("dnsmasq-tftp[1]: file /tftp/\x1b[31m not found for 10.80.0.21")
    for _ in range(5):
        host.turn()
    assert len(host.lines) == 5, "none of them is two"
    assert all(line.isprintable() for line in host.lines)
    assert max(len(line) for line in host.lines) <= LONGEST_LINE + 20


def test_a_line_is_one_and_bounded_whatever_it_is_made_of() -> None:
    line = line_at(NOON, "\x1b[31m|\n" + "\u202e" * 5000)
    assert line.startswith("12:00:00.000 \\x1b[31m¦\\x0a")
    assert (line.isprintable(), "|" in line, len(line) <= LONGEST_LINE + 20) == (True, False, True)


@pytest.mark.parametrize(
    "line",
    [
        b"no json 10.80.0.21", b'{"client":"10.80.0.21"}', b'["10.80.0.21"]', b"\xff10.80.0.21",
        b'{"client":"10.80.0.21","time":7}', b"[" * 4000 + b"10.80.0.21",
    ],
)  # fmt: skip
def test_a_log_line_that_cannot_be_read_is_left_out(host: Host, line: bytes) -> None:
    host.turn()
    with host.log.open("ab") as log:
        log.write(line + b"\n")
    host.logs()
    host.turn()
    assert "HTTP GET /boot.ipxe" in host.lines[-1]


def test_a_machine_that_calls_itself_by_bytes_that_are_no_text_is_told_all_the_same(host: Host) -> None:
    """nginx writes the bytes of a request down as they came: one byte would hide who sends it from its trace."""
    host.turn()
    host.logs(agent="AGENT")
    host.log.write_bytes(host.log.read_bytes().replace(b"AGENT", b"\xff\xfe curl"))
    host.turn()
    assert "HTTP GET /boot.ipxe from 10.80.0.21" in host.lines[-1]
    assert host.lines[-1].isprintable()


def test_a_machine_that_is_no_servers_is_told_on_its_rack(tmp_path: Path) -> None:
    host = Host(tmp_path, asking(rack(), UNTIL, OTHER), server())
    host.turn()
    assert host.watched == [{OTHER}]
    host.hears(OTHER, "dropped-no-discovery-range")
    host.hears(MAC)
    host.turn()
    assert [about for about, _ in host.events.told] == ["Rack/r01", "Rack/r01"]
    assert "dropped-no-discovery-range" in host.lines[-1]


def test_a_boot_storm_of_others_is_passed_over(host: Host) -> None:
    host.turn()
    others = json.dumps({"client": "10.80.9.9", "path": "/images/x", "agent": "x" * 900}) + "\n"
    with host.log.open("a") as log:
        log.write(others * 8_000)
    host.turn()
    host.turn()
    assert "1 more was not told: too many at a time" in host.lines[-1]
    host.logs()
    host.turn()
    assert "HTTP GET /boot.ipxe" in host.lines[-1]
