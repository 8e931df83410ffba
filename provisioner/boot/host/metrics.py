"""What stands on a boot host, put together for who asks."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cryptography import x509
from prometheus_client.core import Metric

from provisioner.boot.host.health import BootHostHealth
from provisioner.boot.host.image_store import StoreWatch
from provisioner.boot.host.nginx_upkeep import stamp_of
from provisioner.boot.metrics.dhcp import CountedResponder, dhcp_families
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.meters import log_families
from provisioner.boot.metrics.programs import Program, health_families, nginx_families, program_families
from provisioner.boot.metrics.store import space_of
from provisioner.boot.observe.recorder import ProgressRecorder
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.script.renderer import ScriptRenderer
from provisioner.cluster.series import Families, by_label, gauge

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


def told_of_boot_host(
    *,
    renderer: ScriptRenderer,
    recorder: ProgressRecorder,
    index: ServerIndex,
    store: StoreWatch,
    folders: Mapping[str, Path],
    dhcp: CountedResponder | None,
    health: BootHostHealth,
    programs: Sequence[Program],
    slots: int,
    certificate: Path | None,
    tail: LogTail,
) -> Sequence[Families]:
    """folders: whose disk is told, by name. dhcp, certificate: None where there is none."""

    def work() -> Iterable[Metric]:
        yield gauge("scripts", "Scripts that are written, one for each server.", (), {(): renderer.scripts})
        pending, seconds = renderer.pending()
        yield gauge("scripts_pending", "Scripts that are older than the inventory.", (), {(): pending})
        words = "How long the change has waited that has waited longest for its scripts; 0 if none waits."
        yield gauge("scripts_pending_seconds", words, (), {(): seconds})
        words = "Servers of which reports have come that are not written yet."
        yield gauge("progress_pending", words, (), {(): recorder.pending})
        words = "Machines that are not registered, and wait for somebody to accept them."
        yield gauge("unknown_machines_waiting", words, (), {(): index.waiting})

    def stores() -> Iterable[Metric]:
        complete, incomplete = store.count()
        words = "Images, by whether this host's store has all files of them."
        yield gauge("image_store_images", words, ("state",), by_label({"complete": complete, "incomplete": incomplete}))
        for name, folder in folders.items():
            yield from space_of(name, folder, name.replace("_", " "))

    return [
        work,
        stores,
        *([(lambda responder: lambda: dhcp_families(responder))(dhcp)] if dhcp is not None else []),
        lambda: health_families(health.liveness, health.readiness),
        lambda: program_families(programs),
        lambda: nginx_families(health.nginx.connections, slots),
        *([CertificateEnd("join", certificate).families] if certificate is not None else []),
        lambda: log_families(tail),
    ]
