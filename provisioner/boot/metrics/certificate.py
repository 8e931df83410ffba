"""When a certificate ends, read from its file."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

from cryptography import x509
from prometheus_client.core import Metric

from provisioner.boot.host.nginx_upkeep import stamp_of
from provisioner.cluster.series import gauge


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
