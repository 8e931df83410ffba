"""The servers in the race: each with the same reservations, without lease files, in the course's namespace."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.dhcp.wire import SERVER_ADDRESS, SERVER_INTERFACE, SUBNET, Course, reservations

Start = Callable[[Course, int, Path], contextlib.AbstractContextManager[None]]
"""Starts a server with so many reservations and a folder of its own; it runs until the context ends."""


@contextlib.contextmanager
def _process(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            stdin=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(command)} ended: {(folder / 'log').read_text()[-2000:]}")
        finally:
            process.terminate()
            process.wait(30)


def ours(workers: int) -> Start:
    @contextlib.contextmanager
    def start(course: Course, count: int, folder: Path) -> Iterator[None]:
        command = course.at_server(sys.executable, "-m", "tests.benchmarks.dhcp.serve", str(count), str(workers))
        with _process(command, folder):
            yield

    return start


@contextlib.contextmanager
def floor(course: Course, _: int, folder: Path) -> Iterator[None]:
    """No server: see floor.py."""
    with _process(course.at_server(sys.executable, "-m", "tests.benchmarks.dhcp.floor"), folder):
        yield


def kea(program: str, threads: int) -> Start:
    """With one thread Kea's multi-threading is off, which spares it the queues between threads."""
    multi_threading: dict[str, object] = {"enable-multi-threading": threads > 1}
    if threads > 1:
        multi_threading |= {"thread-pool-size": threads, "packet-queue-size": 64}

    @contextlib.contextmanager
    def start(course: Course, count: int, folder: Path) -> Iterator[None]:
        settings = {
            "interfaces-config": {"interfaces": [SERVER_INTERFACE], "dhcp-socket-type": "udp", "re-detect": False},
            "lease-database": {"type": "memfile", "persist": False},
            "multi-threading": multi_threading,
            "valid-lifetime": 86400,
            "host-reservation-identifiers": ["hw-address"],
            "reservations-out-of-pool": True,
            "subnet4": [
                {
                    "id": 1,
                    "subnet": SUBNET,
                    "option-data": [
                        {"name": "routers", "data": SERVER_ADDRESS},
                        {"name": "domain-name-servers", "data": SERVER_ADDRESS},
                    ],
                    "reservations": [{"hw-address": mac, "ip-address": at} for mac, at in reservations(count)],
                }
            ],
            "loggers": [{"name": "kea-dhcp4", "severity": "ERROR", "output_options": [{"output": "stderr"}]}],
        }
        path = folder / "kea.json"
        path.write_text(json.dumps({"Dhcp4": settings}))
        environment = {"KEA_PIDFILE_DIR": str(folder), "KEA_LOCKFILE_DIR": str(folder)}
        with _process(course.at_server(program, "-c", str(path)), folder, environment):
            yield

    return start


def dnsmasq(program: str) -> Start:
    @contextlib.contextmanager
    def start(course: Course, count: int, folder: Path) -> Iterator[None]:
        hosts = folder / "hosts"
        hosts.write_text("".join(f"{mac},{at},24h\n" for mac, at in reservations(count)))
        command = course.at_server(
            program, "-k", "--conf-file=/dev/null", "--port=0", "--user=root", "--pid-file", "--leasefile-ro",
            "--no-ping", "--quiet-dhcp", f"--dhcp-hostsfile={hosts}", "--dhcp-lease-max=100000",
            "--dhcp-range=10.64.0.0,static,255.255.0.0,24h", f"--interface={SERVER_INTERFACE}", "--bind-interfaces",
        )  # fmt: skip
        with _process(command, folder):
            yield

    return start
