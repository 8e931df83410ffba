"""What stands on a boot host, put together for who asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from prometheus_client.core import Metric

from provisioner.boot.health.boot_host import BootHostHealth
from provisioner.boot.metrics.certificate import CertificateEnd
from provisioner.boot.metrics.dhcp import CountedResponder, dhcp_families
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.meters import (
    Families,
    log_families,
    script_families,
    store_families,
    waiting_families,
)
from provisioner.boot.metrics.programs import Program, health_families, nginx_families, program_families
from provisioner.boot.metrics.store import space_of


class Renderer(Protocol):
    @property
    def scripts(self) -> int: ...

    def pending(self) -> tuple[int, float]: ...


class Recorder(Protocol):
    @property
    def pending(self) -> int: ...


class CountedIndex(Protocol):
    @property
    def waiting(self) -> int: ...


class Store(Protocol):
    def count(self) -> tuple[int, int]: ...


def told_of_boot_host(
    *,
    renderer: Renderer,
    recorder: Recorder,
    index: CountedIndex,
    store: Store,
    folders: Mapping[str, Path],
    dhcp: CountedResponder | None,
    health: BootHostHealth,
    programs: Sequence[Program],
    slots: int,
    certificate: Path | None,
    tail: LogTail,
) -> Sequence[Families]:
    """folders: whose disk is told, by name. dhcp, certificate: None where there is none."""

    def spaces() -> Iterable[Metric]:
        for name, folder in folders.items():
            yield from space_of(name, folder, str(name).replace("_", " "))

    return [
        lambda: script_families(renderer.scripts, renderer.pending()),
        lambda: waiting_families(recorder.pending, index.waiting),
        lambda: store_families(*store.count()),
        spaces,
        *([(lambda responder: lambda: dhcp_families(responder))(dhcp)] if dhcp is not None else []),
        lambda: health_families(health.liveness, health.readiness),
        lambda: program_families(programs),
        lambda: nginx_families(health.nginx.connections, slots),
        *([CertificateEnd("join", certificate).families] if certificate is not None else []),
        lambda: log_families(tail),
    ]
