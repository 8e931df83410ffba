"""The whole server with its worker processes, asked over the loopback network as a relay would ask."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Server
from provisioner.boot.dhcp import DhcpConfig, DhcpServer, Observation
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient
from provisioner.boot.dhcp.workers import sockets
from tests.boot.dhcp.messages import mac_bytes, message, rack, request_of, server, subnet, yiaddr
from tests.boot.dhcp.relay import (
    PATIENCE_SECONDS,
    RELAY_ADDRESS,
    SERVER_ADDRESS,
    Relay,
    config,
    counted,
    wait_until,
    worker_of,
    worker_pids,
)
from tests.tools import is_running

pytestmark = pytest.mark.programs

RACK = rack("r01", subnet(cidr="127.80.0.0/24", gateway=SERVER_ADDRESS, discovery=("127.80.0.200", "127.80.0.209")))
PXE = {opt.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003016", opt.CLIENT_ARCHITECTURE: b"\x00\x07"}


def mac_for(worker: int, serial: int = 0) -> str:
    """A MAC address whose packets the kernel gives to this one of two workers."""
    found = (n for n in range(1000) if worker_of(mac_bytes(f"52:54:00:00:{n >> 8:02x}:{n & 255:02x}"), 2) == worker)
    for _ in range(serial):
        next(found)
    n = next(found)
    return f"52:54:00:00:{n >> 8:02x}:{n & 255:02x}"


def registered(mac: str, host: int) -> Server:
    return server(f"s{host}", mac, f"127.80.0.{host}")


def discover(mac: str, xid: int = 1, options: dict[int, bytes] | None = None) -> bytes:
    return message(opt.DISCOVER, mac, giaddr=RELAY_ADDRESS, xid=xid, options=options)


class Running:
    def __init__(self, settings: DhcpConfig) -> None:
        self.settings = settings
        self.observations: list[Observation] = []
        self.server = DhcpServer(settings, self.observations.append)

    def kinds(self) -> set[tuple[str, str, str | None]]:
        return {(o.mac_address, o.kind, o.server) for o in self.observations}


@contextlib.contextmanager
def running(*objects: Rack | Server, **settings: object) -> Iterator[tuple[Running, Relay]]:
    run = Running(config(**settings))
    run.server.start()
    try:
        if objects:
            racks = [item for item in objects if isinstance(item, Rack)]
            run.server.replace(racks, [item for item in objects if isinstance(item, Server)])
        with Relay(run.settings) as relay:
            yield run, relay
    finally:
        run.server.stop()


def long_discover(mac: str, size: int) -> bytes:
    """Of `size` bytes, with what a relay said of itself at its very end."""
    told = opt.encode_option(opt.RELAY_INFORMATION, b"\x01\x04port") + b"\xff"
    data = message(opt.DISCOVER, mac, giaddr=RELAY_ADDRESS, xid=size, end=b"")
    pieces = (size - len(data) - len(told)) // 257
    data += opt.encode_option(43, bytes(255)) * pieces
    return data + bytes(size - len(data) - len(told)) + told


@pytest.mark.parametrize("worker", [0, 1], ids=["keeps the ranges", "hands strangers over"])
@pytest.mark.parametrize("size", [1500, 4000, 9000, opt.LONGEST_MESSAGE])
def test_a_long_message_is_read_to_its_end(worker: int, size: int) -> None:
    known, unknown = mac_for(worker), mac_for(worker, 1)
    with running(RACK, registered(known, 11)) as (_, relay):
        for mac in (known, unknown):
            assert relay.exchange(long_discover(mac, size)).options[opt.RELAY_INFORMATION] == b"\x01\x04port"


def test_a_message_that_is_too_long_is_counted_and_the_next_is_answered() -> None:
    known = mac_for(0)
    with running(RACK, registered(known, 11)) as (run, relay):
        for size in (opt.LONGEST_MESSAGE + 1, 20_000, 60_000):
            relay.send(long_discover(known, size))
        assert yiaddr(relay.exchange(discover(known))) == "127.80.0.11"
        wait_until(lambda: counted(run.server, "dropped-long-packet") == 3, "they were not counted")


def test_an_ipoib_client_is_seen_by_its_guid() -> None:
    identifier = bytes.fromhex("ff00000000000200 0002c900 0002c903000c7811")
    data = discover("00:00:00:00:00:00", options={opt.CLIENT_IDENTIFIER: identifier})
    with running(RACK) as (run, relay):

        def is_seen() -> bool:
            relay.send(b"\x01\x20\x00" + data[3:])
            return bool(run.observations)

        wait_until(is_seen, "it was not seen")
        seen = run.observations[0]
        assert (seen.kind, seen.server, seen.client_identifier) == ("InfiniBand", None, "GUID 0x0002c903000c7811")


def test_machines_are_answered_by_every_worker() -> None:
    first, second = mac_for(0), mac_for(1)
    with running(RACK, registered(first, 11), registered(second, 12)) as (run, relay):
        assert yiaddr(relay.exchange(discover(first, 1))) == "127.80.0.11"
        assert yiaddr(relay.exchange(discover(second, 2))) == "127.80.0.12"
        ack = relay.exchange(
            request_of("127.80.0.12", second, server=SERVER_ADDRESS, giaddr=RELAY_ADDRESS, xid=3)  # type: ignore[arg-type]
        )
        assert ack.options[opt.MESSAGE_TYPE] == bytes((opt.ACK,))
        wait_until(lambda: counted(run.server, "acknowledged") >= 1, "the counters were not reported")
        assert counted(run.server, "offered") >= 2


def test_before_the_inventory_is_known_there_is_silence_and_afterwards_answers() -> None:
    mac = mac_for(0)
    with running() as (run, relay):
        run.server.put_rack(RACK)
        run.server.put_server(registered(mac, 11))
        relay.send(discover(mac))
        wait_until(lambda: counted(run.server, "dropped-not-synced") >= 1, "the packet was not seen")
        assert relay.receive(0.1) is None
        run.server.replace([RACK], [registered(mac, 11)])
        assert yiaddr(relay.exchange(discover(mac, 2))) == "127.80.0.11"


def test_changes_reach_every_worker() -> None:
    first, second = mac_for(0), mac_for(1)
    with running(RACK, registered(first, 11), registered(second, 12)) as (run, relay):
        run.server.put_server(registered(second, 77))
        run.server.remove_server("s12")
        wait_until(lambda: yiaddr(relay.exchange(discover(second, 2))) == "127.80.0.77", "the change was not served")
        run.server.remove_rack("r01")
        wait_until(
            lambda: (relay.send(discover(first, 3)), counted(run.server, "dropped-unknown-relay"))[1] > 0,
            "the removed rack was still served",
        )


def test_unknown_machines_of_all_workers_share_one_discovery_range_without_collision() -> None:
    macs = [mac_for(n % 2, n // 2) for n in range(10)]
    with running(RACK) as (run, relay):
        lent = {}
        for n, mac in enumerate(macs):
            offered = yiaddr(relay.exchange(discover(mac, 100 + n)))
            ack = relay.exchange(
                request_of(offered, mac, server=SERVER_ADDRESS, giaddr=RELAY_ADDRESS, xid=200 + n)  # type: ignore[arg-type]
            )
            assert ack.options[opt.MESSAGE_TYPE] == bytes((opt.ACK,))
            lent[mac] = offered
        assert set(lent.values()) == {f"127.80.0.{n}" for n in range(200, 210)}
        wait_until(lambda: counted(run.server, "forwarded-unknown-machine") >= 10, "nothing was forwarded")


def test_a_message_that_one_worker_hands_to_another_is_counted_once_and_answers_have_their_time() -> None:
    with running(RACK) as (run, relay):
        for xid in range(20):
            relay.send(discover(mac_for(1, xid % 5), 300 + xid, PXE))
        wait_until(lambda: counted(run.server, "offered-lent") == 20, "not all were answered")
        wait_until(lambda: counted(run.server, "forwarded-unknown-machine") == 20, "none was handed over")
        relay.exchange(request_of("127.80.0.200", mac_for(0), server=SERVER_ADDRESS, giaddr=RELAY_ADDRESS, xid=7))  # type: ignore[arg-type]
        wait_until(lambda: sum(run.server.tally().waits) >= 1, "no time was noted")
        found = {(number, relayed, client): n for number, relayed, client, n in run.server.tally().messages() if n}
        assert found[opt.DISCOVER, True, DhcpClient.X64_PXE] == 20
        assert run.server.workers[:3] == (2, 2, 0)


def test_what_is_seen_of_a_boot_is_told_once_for_each_exchange() -> None:
    known, unknown = mac_for(0), mac_for(1, 3)
    with running(RACK, registered(known, 11)) as (run, relay):
        for xid, options in ((1, PXE), (2, PXE | {opt.USER_CLASS: b"iPXE"})):
            relay.exchange(discover(known, xid, options))
            request = request_of("127.80.0.11", known, server=SERVER_ADDRESS, giaddr=RELAY_ADDRESS, xid=xid)  # type: ignore[arg-type]
            relay.exchange(request[:-1] + b"".join(opt.encode_option(k, v) for k, v in options.items()) + b"\xff")
        relay.exchange(discover(unknown, 3, PXE))
        expected = {(known, "Firmware", "s11"), (known, "IPXE", "s11"), (unknown, "Firmware", None)}
        wait_until(lambda: run.kinds() >= expected, f"only {run.kinds()} was told")
        relay.exchange(discover(unknown, 4))
        wait_until(lambda: (unknown, "System", None) in run.kinds(), "an unknown system was not told")
        assert len(run.observations) == 4
        lent = {o.address for o in run.observations if o.server is None}
        assert len(lent) == 1


def test_an_observer_that_fails_hears_of_the_next_machine_all_the_same() -> None:
    first, second = mac_for(0), mac_for(1)
    heard = threading.Event()
    settings = config()

    def observe(observation: Observation) -> None:
        if observation.mac_address == first:
            raise RuntimeError("the service has a bad day")
        heard.set()

    dhcp = DhcpServer(settings, observe)
    dhcp.start()
    try:
        dhcp.replace([RACK], [registered(first, 11), registered(second, 12)])
        with Relay(settings) as relay:
            relay.exchange(discover(first, 1, PXE))
            wait_until(lambda: counted(dhcp, "offered") >= 1, "the first was not counted")
            relay.exchange(discover(second, 2, PXE))
        wait_until(heard.is_set, "the second observation was lost")
    finally:
        dhcp.stop()


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_dies_is_replaced_and_its_queue_is_not_lost(sig: signal.Signals) -> None:
    mac = mac_for(1)
    with running(RACK, registered(mac, 11)) as (run, relay):
        relay.exchange(discover(mac, 1))
        before = worker_pids(run.server)
        os.kill(before[1], sig)
        wait_until(lambda: before[1] not in worker_pids(run.server), "the death was not noticed")
        relay.send(discover(mac, 2))  # once: no client repeats it
        replies = iter(lambda: relay.receive(PATIENCE_SECONDS), None)
        reply = next(reply for reply in replies if reply.data[4:8] == (2).to_bytes(4, "big"))
        assert yiaddr(reply) == "127.80.0.11"
        wait_until(lambda: len(worker_pids(run.server)) == 2, "the worker was not replaced")
        assert worker_pids(run.server)[0] == before[0]


def test_a_worker_that_hangs_is_replaced() -> None:
    mac = mac_for(1)
    with running(RACK, registered(mac, 11)) as (run, relay):
        relay.exchange(discover(mac, 1))
        hung = worker_pids(run.server)[1]
        os.kill(hung, signal.SIGSTOP)
        many = [server(f"x{n}", f"52:55:00:00:{n >> 8:02x}:{n & 255:02x}", f"127.80.0.{n & 127}") for n in range(2000)]
        for _ in range(12):  # more than its pipe holds
            run.server.replace([RACK], [registered(mac, 11), *many])
        wait_until(lambda: hung not in worker_pids(run.server), "the hung worker was kept")
        assert yiaddr(relay.exchange(discover(mac, 2))) == "127.80.0.11"


def test_a_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system has no process, or no descriptor, to spare: for a while."""
    mac = mac_for(1)
    with running(RACK, registered(mac, 11)) as (run, relay):
        relay.exchange(discover(mac, 1))
        lost = worker_pids(run.server)[1]
        real, failures = subprocess.Popen, [BlockingIOError(11, "no process"), OSError(24, "no descriptor")]

        def popen(*arguments: Any, **named: Any) -> Any:
            if failures:
                raise failures.pop()
            return real(*arguments, **named)

        monkeypatch.setattr(subprocess, "Popen", popen)
        open_before = len(list(Path("/proc/self/fd").iterdir()))
        os.kill(lost, signal.SIGKILL)
        wait_until(
            lambda: len(worker_pids(run.server)) == 2 and lost not in worker_pids(run.server), "it was not replaced"
        )
        assert failures == []
        assert yiaddr(relay.exchange(discover(mac, 2))) == "127.80.0.11"
        run.server.put_server(registered(mac, 77))
        run.server.remove_server("s11")
        wait_until(lambda: yiaddr(relay.exchange(discover(mac, 3))) == "127.80.0.77", "the change was not passed on")
        wait_until(
            lambda: len(list(Path("/proc/self/fd").iterdir())) <= open_before, "a failed start left a descriptor behind"
        )


def test_workers_that_cannot_be_started_at_first_come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    mac = mac_for(1)
    real, failures = subprocess.Popen, [BlockingIOError(11, "no process")] * 3

    def popen(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return real(*arguments, **named)

    monkeypatch.setattr(subprocess, "Popen", popen)
    with running(RACK, registered(mac, 11)) as (_, relay):
        assert yiaddr(relay.exchange(discover(mac, 1))) == "127.80.0.11"


def test_a_fault_while_looking_after_workers_does_not_end_that(monkeypatch: pytest.MonkeyPatch) -> None:
    mac, real, failures = mac_for(1), sockets.interface_addresses, [RuntimeError("a bad day")]
    with running(RACK, registered(mac, 11)) as (run, relay):
        relay.exchange(discover(mac, 1))

        def interface_addresses(sock: socket.socket) -> dict[str, tuple[bytes, ...]]:
            if failures:
                raise failures.pop()
            return real(sock)

        monkeypatch.setattr(sockets, "interface_addresses", interface_addresses)
        wait_until(lambda: failures == [], "the addresses were not looked at")
        run.server.put_server(registered(mac, 77))
        run.server.remove_server("s11")
        wait_until(lambda: yiaddr(relay.exchange(discover(mac, 2))) == "127.80.0.77", "the change was not passed on")


def test_stop_leaves_no_process_and_frees_the_port() -> None:
    with running(RACK) as (run, _):
        pids = worker_pids(run.server)
        run.server.stop()
        assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as again:
            again.bind((SERVER_ADDRESS, run.settings.server_port))


def test_workers_end_when_their_parent_is_killed() -> None:
    settings = config()
    program = (
        "import sys, time\n"
        "from provisioner.boot.dhcp import DhcpConfig, DhcpServer\n"
        f"dhcp = DhcpServer(DhcpConfig(server_address='{SERVER_ADDRESS}', server_port={settings.server_port}), print)\n"
        "dhcp.start()\n"
        "print(*(each.process.pid for each in dhcp._supervisor._workers), flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        parent.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids), "a worker outlived its parent")


def test_a_port_that_is_taken_is_refused_with_its_remedy() -> None:
    settings = config()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((SERVER_ADDRESS, settings.server_port))
        with pytest.raises(NeedsHuman, match="stop the other DHCP server"):
            DhcpServer(settings, print).start()


def test_an_interface_that_is_missing_is_refused_by_name() -> None:
    with pytest.raises(NeedsHuman, match="'nosuch0' does not exist"):
        DhcpServer(config(interfaces=("nosuch0",)), print).start()
