"""The checks of a rack's cache. That boot hosts do not answer makes none unready: it gives what it has."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from provisioner.boot.health.probe import Probe
from provisioner.boot.host.health import NginxProbe, threads_check
from provisioner.cluster.health.checks import Check

ANSWER_SECONDS: Final = 3.0


def fetcher_probe(path: Path) -> Probe:
    """Whether the fetcher answers nginx; it is asked for what it cannot have."""

    def attempt() -> str:
        with closing(socket.socket(socket.AF_UNIX)) as asked:
            asked.settimeout(ANSWER_SECONDS)
            asked.connect(str(path))
            asked.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            answer = asked.recv(64)
        if b" 404 " not in answer:
            raise OSError(f"it said {answer!r}, expected that there is nothing of that name")
        return "it answers"

    return Probe("fetcher", attempt)


def disk_probe(folder: Path) -> Probe:
    """Whether it can be written on."""

    def attempt() -> str:
        file = folder / "probe"
        file.write_bytes(b"ok\n")
        file.unlink()
        return "it can be written on"

    return Probe("disk", attempt)


class CacheHealth:
    """The checks of one cache host."""

    def __init__(
        self, *, nginx_status: Path, fetcher: Path, folder: Path, threads: Callable[[], Sequence[threading.Thread]]
    ) -> None:
        self.nginx = NginxProbe(nginx_status)
        self.probes: Final = (self.nginx.probe, fetcher_probe(fetcher), disk_probe(folder))
        self.readiness: Final = tuple(Check(probe.name, probe.verdict) for probe in self.probes)
        self.liveness: Final = (threads_check(threads),)

    @property
    def is_ready(self) -> bool:
        return all(check.look().is_well for check in self.readiness)
