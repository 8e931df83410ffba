"""TFTP as dnsmasq's log tells it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from provisioner.boot.host.firmware import SERVED_FILES
from provisioner.boot.host.tftp import PROBE_FILE
from provisioner.cluster.series import PREFIX, born

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
