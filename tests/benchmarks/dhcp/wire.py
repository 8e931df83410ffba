"""The course of the race: two network namespaces and a cable, the same for every server. Needs root."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SERVER_ADDRESS = "10.64.0.1"
CLIENT_ADDRESS = "10.64.255.254"
SUBNET = "10.64.0.0/16"
SERVER_INTERFACE = "bench0"
FIRST_MAC = 0x000C01020304
"""perfdhcp's own: it counts upwards from here."""


@dataclass(frozen=True)
class Course:
    """Names of the namespaces of server and clients; each side has a core of its own, where there are two."""

    server: str
    clients: str

    def at_server(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.server, *_on_core(0), *command]

    def at_clients(self, *command: str) -> list[str]:
        return ["ip", "netns", "exec", self.clients, *_on_core(1), *command]


def _on_core(number: int) -> list[str]:
    """Prefix that keeps a command on the first or second of the cores that this process may use."""
    cores = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(cores[number])] if len(cores) > 1 else []


def processor_seconds(course: Course) -> float:
    """Processor time, user and system, that the server's threads have used so far, to the nanosecond."""
    pids = subprocess.run(["ip", "netns", "pids", course.server], check=True, capture_output=True, text=True).stdout
    threads = (thread for pid in pids.split() for thread in Path(f"/proc/{pid}/task").iterdir())
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@contextlib.contextmanager
def course() -> Iterator[Course]:
    made = Course(f"provisioner-bench-{os.getpid()}-s", f"provisioner-bench-{os.getpid()}-c")
    try:
        for namespace in (made.server, made.clients):
            _ip("netns", "add", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("link", "add", SERVER_INTERFACE, "netns", made.server, "type", "veth",
            "peer", "name", "eth0", "netns", made.clients)  # fmt: skip
        for namespace, interface, address in (
            (made.server, SERVER_INTERFACE, SERVER_ADDRESS),
            (made.clients, "eth0", CLIENT_ADDRESS),
        ):
            _ip("-n", namespace, "address", "add", f"{address}/16", "dev", interface)
            _ip("-n", namespace, "link", "set", interface, "up")
        yield made
    finally:
        for namespace in (made.server, made.clients):
            subprocess.run(["ip", "netns", "delete", namespace], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def reservations(count: int) -> Iterator[tuple[str, str]]:
    """MAC and IPv4 address of each reserved client."""
    for n in range(count):
        yield (FIRST_MAC + n).to_bytes(6, "big").hex(":"), f"10.64.{1 + (n >> 8)}.{n & 255}"
