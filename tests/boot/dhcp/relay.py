"""A relay on the loopback network that asks a running DhcpServer, and waiting for what it does."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from lab.control_plane.ports import free_port
from provisioner.boot.dhcp import DhcpConfig, DhcpServer
from provisioner.boot.dhcp.wire.packet import Packet
from tests.boot.dhcp.messages import read_reply

SERVER_ADDRESS = "127.80.0.1"
RELAY_ADDRESS = "127.80.0.2"
PATIENCE_SECONDS = 120.0
"""Generous: a loaded machine starts a Python process in seconds."""


def config(**settings: object) -> DhcpConfig:
    """Settings for a server on the loopback network, at a port that was free a moment ago."""
    port = free_port(SERVER_ADDRESS, socket.SOCK_DGRAM)
    return DhcpConfig(**({"server_address": SERVER_ADDRESS, "server_port": port} | settings))  # type: ignore[arg-type]


def worker_of(mac: bytes, workers: int) -> int:
    """The worker to which the kernel gives packets of this client."""
    return ((int.from_bytes(mac[2:6], "big") * 0x9E3779B1 & 0xFFFFFFFF) >> 16) % workers


def counted(server: DhcpServer, verdict: str) -> int:
    """How often that became of a packet, as the workers last reported it."""
    return server.tally().counters.get(verdict, 0)


def worker_pids(server: DhcpServer) -> list[int]:
    """Process ids of the workers that run."""
    workers = server._supervisor._workers
    return [process.pid for worker in workers if (process := worker.process) is not None]


class Relay:
    """Sends from the relay's address and reads what is sent to it. All its packets have one source and port."""

    def __init__(self, settings: DhcpConfig) -> None:
        self._server = (settings.server_address, settings.server_port)
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.bind((RELAY_ADDRESS, settings.server_port))

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._sock.close()

    def send(self, data: bytes) -> None:
        self._sock.sendto(data, self._server)

    def receive(self, seconds: float) -> Packet | None:
        self._sock.settimeout(seconds)
        try:
            return read_reply(self._sock.recv(4096))
        except TimeoutError:
            return None

    def exchange(self, data: bytes) -> Packet:
        """Ask as a client does, again and again, until there is an answer to this question."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < give_up:
            self.send(data)
            reply = self.receive(0.5)
            while reply is not None and reply.data[4:8] != data[4:8]:
                reply = self.receive(0.5)
            if reply is not None:
                return reply
        raise AssertionError("no answer")


def wait_until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def is_written(file: Path) -> bool:
    """Whether another process has written a line of it to its end."""
    return file.exists() and file.read_text().endswith("\n")
