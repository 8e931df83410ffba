"""What stands on a boot host, put together for who asks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cryptography import x509
from prometheus_client.core import Metric

from provisioner.boot.host.health import BootHostHealth
from provisioner.boot.host.nginx_upkeep import stamp_of
from provisioner.boot.metrics.dhcp import CountedResponder, dhcp_families
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.meters import log_families, script_families, store_families, waiting_families
from provisioner.boot.metrics.programs import Program, health_families, nginx_families, program_families
from provisioner.boot.metrics.store import space_of
from provisioner.cluster.series import Families, gauge

# When a certificate ends, read from its file.


class CertificateEnd:
    """`file`: PEM, the certificate itself first. It is read again once it has changed."""

    def __init__(self, purpose: str, file: Path) -> None:
        self._purpose, self._file = purpose, file
        self._lock = threading.Lock()
        self._stamp: object = None
        self._begins = self._ends = 0.0

    def families(self) -> Iterable[Metric]:
        """0, long ago, for a file that is no certificate."""
        with self._lock:
            if (stamp := stamp_of([self._file])) != self._stamp:
                self._stamp, (self._begins, self._ends) = stamp, self._read()
            begins, ends = self._begins, self._ends
        words = "When the certificate that is served for this purpose ends."
        yield gauge("certificate_expiry_timestamp_seconds", words, ("purpose",), {(self._purpose,): ends})
        words = "When it began: one that is short-lived by intent is due for renewal in the last third of its life."
        yield gauge("certificate_begin_timestamp_seconds", words, ("purpose",), {(self._purpose,): begins})

    def _read(self) -> tuple[float, float]:
        try:
            found = x509.load_pem_x509_certificate(self._file.read_bytes())
        except (OSError, ValueError):
            return 0.0, 0.0
        return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()


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
