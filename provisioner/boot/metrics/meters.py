"""All that a boot host measures, and what of it is told when Prometheus asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.progress import ProgressMeter
from provisioner.boot.metrics.requests import RequestsMeter
from provisioner.boot.metrics.scripts import ScriptMeter
from provisioner.boot.metrics.store import PullMeter
from provisioner.boot.tftp.dnsmasq import PROBE_FILE
from provisioner.boot.tftp.firmware import SERVED_FILES
from provisioner.cluster.request_meter import RequestMeter
from provisioner.cluster.series import PREFIX, Families, FamiliesCollector, born, by_label, counter, tell_process

# TFTP as dnsmasq's log tells it.

RESULTS: Final = ("sent", "failed", "not_found")
_OTHER: Final = "other"
_FILES: Final = (*SERVED_FILES, _OTHER)

# The name in a line is the machine's own, and may hold anything, " to " and " for " too: what is not a file of ours
# counts as `other`, and only the beginning and the end of a line are believed.
_SENT: Final = re.compile(r"sent (.*) to [0-9.]+$")
_FAILED: Final = re.compile(r"failed sending (.*) to [0-9.]+$")
_ABORTED: Final = re.compile(r"error \d+ .* received from [0-9.]+$")
"""Some firmware asks for a file's size so, and breaks off. What becomes of the transfer, the next line says."""
_NOT_FOUND: Final = re.compile(r"file (.*) not found for [0-9.]+$")


class TftpMeter:
    """Counts transfers. `size_of`: of a file that is served, in bytes; 0 if it is not known."""

    def __init__(self, registry: CollectorRegistry, size_of: Callable[[str], int]) -> None:
        self._size_of = size_of
        self._transfers = Counter(
            f"{PREFIX}_tftp_transfers", "TFTP transfers that ended, by how.", ("file", "result"), registry=registry
        )
        self._bytes = Counter(
            f"{PREFIX}_tftp_sent_bytes", "Bytes of files that were sent whole by TFTP.", ("file",), registry=registry
        )
        born(self._transfers, _FILES, RESULTS)
        born(self._bytes, _FILES)

    def heard(self, line: str) -> bool:
        """Take a line of dnsmasq's log. Returns: whether it is of a transfer, which nobody need read."""
        said = line.partition("dnsmasq-tftp")[2].partition(": ")[2]
        if _ABORTED.match(said):
            return True
        for pattern, result in ((_SENT, "sent"), (_FAILED, "failed"), (_NOT_FOUND, "not_found")):
            found = pattern.match(said)
            if found is None:
                continue
            name = found[1].rpartition("/")[2]
            if name == PROBE_FILE:
                return True
            file = name if name in SERVED_FILES else _OTHER
            self._transfers.labels(file, result).inc()
            if result == "sent":
                self._bytes.labels(file).inc(self._size_of(name))
            return True
        return False


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
    faults = by_label({"unreadable_line": tail.unreadable_lines, "lost_bytes": tail.lost_bytes})
    yield counter("http_log_faults", "What of nginx's log could not be counted.", ("fault",), faults)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
