"""The programs that are kept running, and the checks of readiness, as gauges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from prometheus_client.core import Metric

from provisioner.boot.metrics.nginx_status import Connections
from provisioner.cluster.health.checks import Check
from provisioner.cluster.series import by_label, counter, gauge


class Program(Protocol):
    """What is read of provisioner.boot.host.processes.Child."""

    @property
    def name(self) -> str: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def restarts(self) -> int: ...


def program_families(programs: Sequence[Program]) -> Iterable[Metric]:
    running = by_label({each.name: each.pid is not None for each in programs})
    yield gauge("program_running", "1 while the program runs.", ("program",), running)
    restarts = by_label({each.name: each.restarts for each in programs})
    yield counter("program_restarts", "How often the program was started after it had ended.", ("program",), restarts)


def health_families(liveness: Sequence[Check], readiness: Sequence[Check]) -> Iterable[Metric]:
    for name, path, checks in (("liveness_check", "/healthz", liveness), ("readiness_check", "/readyz", readiness)):
        found = by_label({check.name: check.look().is_well for check in checks})
        yield gauge(name, f"1 for each check of {path} that passes, 0 for each that fails.", ("check",), found)


def nginx_families(connections: Connections | None, slots: int) -> Iterable[Metric]:
    """`connections`: None where nginx did not answer: then nothing is told of them."""
    yield gauge("image_slots", "Files of images that are sent at once, at most.", (), {(): slots})
    if connections is not None:
        states = by_label(connections._asdict())
        yield gauge("http_connections", "Connections, by what nginx does with them.", ("state",), states)
