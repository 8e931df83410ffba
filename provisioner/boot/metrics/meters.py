"""All that a boot host measures, and what of it is told when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from provisioner.boot.metrics.families import FamiliesCollector, counter
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.progress import ProgressMeter
from provisioner.boot.metrics.requests import RequestsMeter
from provisioner.boot.metrics.scripts import ScriptMeter
from provisioner.boot.metrics.store import PullMeter
from provisioner.boot.metrics.tftp import TftpMeter
from provisioner.cluster.request_meter import RequestMeter
from provisioner.cluster.series import gauge, tell_process

Families = Callable[[], Iterable[Metric]]


class BootMeters:
    """`tftp`: the folder that is served by TFTP."""

    def __init__(self, tftp: Path) -> None:
        self.registry = CollectorRegistry()
        tell_process(self.registry, "boot")
        self.api = RequestMeter(self.registry)
        self.scripts = ScriptMeter(self.registry)
        self.progress = ProgressMeter(self.registry)
        self.requests = RequestsMeter(self.registry)
        self.pulls = PullMeter(self.registry)
        self.tftp = TftpMeter(self.registry, lambda name: _size(tftp / name))

    def tell(self, families: Sequence[Families]) -> None:
        """From now on, these too. Once."""
        self.registry.register(FamiliesCollector(lambda: (metric for each in families for metric in each())))


def log_families(tail: LogTail) -> Iterable[Metric]:
    """Whether what is counted of the requests can be trusted."""
    faults: dict[tuple[str, ...], float] = {
        ("unreadable_line",): tail.unreadable_lines,
        ("lost_bytes",): tail.lost_bytes,
    }
    yield counter("http_log_faults", "What of nginx's log could not be counted.", ("fault",), faults)


def script_families(scripts: int, pending: tuple[int, float]) -> Iterable[Metric]:
    yield gauge("scripts", "Scripts that are written, one for each server.", (), {(): scripts})
    yield gauge("scripts_pending", "Scripts that are older than the inventory.", (), {(): pending[0]})
    words = "How long the change has waited that has waited longest for its scripts; 0 if none waits."
    yield gauge("scripts_pending_seconds", words, (), {(): pending[1]})


def store_families(complete: int, incomplete: int) -> Iterable[Metric]:
    words = "Images, by whether this host's store has all files of them."
    yield gauge("image_store_images", words, ("state",), {("complete",): complete, ("incomplete",): incomplete})


def waiting_families(reports: int, machines: int) -> Iterable[Metric]:
    words = "Servers of which reports have come that are not written yet."
    yield gauge("progress_pending", words, (), {(): reports})
    words = "Machines that are not registered, and wait for somebody to accept them."
    yield gauge("unknown_machines_waiting", words, (), {(): machines})


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
