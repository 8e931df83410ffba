"""An IPMI BMC in an attacker's hands: it floods, drips and lies to its own process, and an honest one is served."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.power.bmc.ipmi import IpmiPower
from provisioner.power.bmc.ipmi_processes import IpmiProcesses
from provisioner.power.bmc.power_controller import BmcUnreachable
from tests.power.ipmi_sim import PASSWORD, IpmiSim, ipmi_sim

PATIENCE = 180.0
CALL_SECONDS = 4.0
Answer = Callable[[socket.socket, bytes, tuple[str, int], threading.Event], None]


@pytest.fixture
def processes() -> Iterator[IpmiProcesses]:
    made = IpmiProcesses()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def honest(tmp_path: Path) -> Iterator[IpmiSim]:
    with ipmi_sim(tmp_path / "bmc") as made:
        yield made


@contextmanager
def udp_server(answer: Answer) -> Iterator[int]:
    """Its port; each packet that comes is given to `answer`, with who sent it."""
    stop = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(0.1)

        def serve() -> None:
            while not stop.is_set():
                try:
                    packet, client = server.recvfrom(4096)
                    answer(server, packet, client, stop)
                except OSError:
                    continue

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join(PATIENCE)


def flood(server: socket.socket, packet: bytes, client: tuple[str, int], stop: threading.Event) -> None:
    noise = b"\x06\x00\xff\x07" + os.urandom(1400)
    while not stop.is_set():
        server.sendto(noise, client)


def drip(server: socket.socket, packet: bytes, client: tuple[str, int], stop: threading.Event) -> None:
    while not stop.wait(0.05):
        server.sendto(b"\x06\x00\xff\x07" + bytes(20), client)


def echo(server: socket.socket, packet: bytes, client: tuple[str, int], stop: threading.Event) -> None:
    server.sendto(packet, client)


def nonsense(server: socket.socket, packet: bytes, client: tuple[str, int], stop: threading.Event) -> None:
    for length in (4, 5, 17, 200, 1500):
        server.sendto(b"\x06\x00\xff\x07" + os.urandom(length), client)
        server.sendto(packet[:4] + os.urandom(length), client)


@pytest.mark.parametrize("answer", [flood, drip, echo, nonsense])
def test_a_hostile_ipmi_bmc_costs_its_own_call_only(honest: IpmiSim, processes: IpmiProcesses, answer: Answer) -> None:
    with udp_server(answer) as port, ThreadPoolExecutor(1) as threads:
        power = IpmiPower(replace(honest.access, address=f"127.0.0.1:{port}"), processes, call_seconds=CALL_SECONDS)
        attacked = threads.submit(power.get_power_state)
        assert IpmiPower(honest.access, processes, call_seconds=PATIENCE).get_power_state() == "Off"
        failed = attacked.exception(PATIENCE)
    assert isinstance(failed, BmcUnreachable), failed
    assert str(failed).isprintable()
    assert PASSWORD not in str(failed)
    assert IpmiPower(honest.access, processes, call_seconds=PATIENCE).get_power_state() == "Off"
