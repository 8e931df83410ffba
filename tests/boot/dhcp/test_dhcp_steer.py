"""The kernel's part: which socket gets a packet. Checked with real sockets, unicast and broadcast."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

import pytest

from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.workers import sockets
from tests.boot.dhcp.messages import mac_bytes, message
from tests.boot.dhcp.relay import PATIENCE_SECONDS, RELAY_ADDRESS, config, worker_of
from tests.boot.dhcp.wire import connect, namespaces

WORKERS = 3
MACS = [f"52:54:00:00:{n:02x}:{n * 4 & 255:02x}" for n in range(40)]


@contextlib.contextmanager
def opened(settings: object) -> Iterator[list[list[sockets.WorkerSocket]]]:
    listeners = sockets.open_listeners(settings)  # type: ignore[arg-type]
    try:
        yield listeners
    finally:
        sockets.close(listeners)


def received(listeners: list[list[sockets.WorkerSocket]], count: int) -> list[tuple[int, bool, int, bytes]]:
    """The first `count` packets: worker, whether in its queue for DISCOVERs, interface index, packet."""
    places = {listener.sock: (worker, listener) for worker, own in enumerate(listeners) for listener in own}
    found = []
    while len(found) < count:
        ready, _, _ = select.select(list(places), [], [], PATIENCE_SECONDS)
        assert ready, f"{len(found)} of {count} packets came"
        for sock in ready:
            worker, listener = places[sock]
            found.append((worker, listener.discovers, listener.interface_index, sock.recv(4096)))
    ready, _, _ = select.select(list(places), [], [], 0.2)
    assert not ready, "a packet came twice"
    return found


def packets() -> list[bytes]:
    return [message(kind, mac) for mac in MACS for kind in (opt.DISCOVER, opt.REQUEST)]


def check(found: list[tuple[int, bool, int, bytes]]) -> None:
    assert sorted(packet for *_, packet in found) == sorted(packets())
    for worker, discovers, _, packet in found:
        assert worker == worker_of(packet[28:34], WORKERS)
        assert discovers is (packet[242] == opt.DISCOVER)
    assert {worker for worker, *_ in found} == set(range(WORKERS))


def test_packets_of_one_relay_are_spread_over_all_workers_and_discovers_kept_apart() -> None:
    settings = config(workers=WORKERS)
    with opened(settings) as listeners, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay:
        relay.bind((RELAY_ADDRESS, settings.server_port))
        for packet in packets():
            relay.sendto(packet, (settings.server_address, settings.server_port))
        check(received(listeners, len(packets())))


def test_a_unicast_packet_too_short_to_steer_reaches_the_worker_that_counts_it() -> None:
    settings = config(workers=WORKERS)
    with opened(settings) as listeners, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay:
        relay.bind((RELAY_ADDRESS, settings.server_port))
        for length in (1, 100, 243):
            relay.sendto(message(opt.DISCOVER)[:length].ljust(length), (settings.server_address, settings.server_port))
        assert {(worker, discovers) for worker, discovers, *_ in received(listeners, 3)} == {(0, False)}


def test_a_broadcast_packet_reaches_one_worker_though_the_kernel_copies_it_to_all() -> None:
    with namespaces(2) as (servers, clients):
        connect(servers, "rack0", clients, "eth0")
        servers.ip("addr", "add", "10.80.0.1/24", "dev", "rack0")
        clients.ip("addr", "add", "10.80.0.9/24", "dev", "eth0")
        settings = config(server_address="10.80.0.1", server_port=67, interfaces=("rack0",), workers=WORKERS)
        with servers.entered():
            listeners = sockets.open_listeners(settings)
            index = socket.if_nametoindex("rack0")
        with clients.entered():
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        with client:
            for packet in packets():
                client.sendto(packet, ("255.255.255.255", 67))
            found = received(listeners, len(packets()))
            check(found)
            assert {interface for _, _, interface, _ in found} == {index}
            client.sendto(b"short", ("255.255.255.255", 67))
            assert [(worker, discovers) for worker, discovers, *_ in received(listeners, 1)] == [(0, False)]
            assert sockets.interface_addresses(listeners[0][-1].sock)["rack0"] == (bytes((10, 80, 0, 1)),)
        sockets.close(listeners)


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 16])
def test_macs_in_steps_of_a_dual_port_card_are_spread_evenly(workers: int) -> None:
    counts = [0] * workers
    for n in range(0, 4000, 4):
        counts[worker_of(mac_bytes("0c:42:a1:00:00:00")[:3] + n.to_bytes(3, "big"), workers)] += 1
    assert min(counts) > 0.6 * 1000 / workers
