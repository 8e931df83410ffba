"""When the certificates end on which a service stands, told when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import structlog
from cryptography import x509
from prometheus_client.core import Metric

from provisioner.cluster.series import gauge

log = structlog.get_logger()


def certificate_ends(read: Mapping[str, Callable[[], str | None]]) -> Iterable[Metric]:
    """`read`: by purpose, what gives the PEM as it is now; None if there is none. What cannot be read is left out."""
    found = {purpose: _end(purpose, look) for purpose, look in read.items()}
    ends = {(purpose,): end for purpose, end in found.items() if end is not None}
    words = "When the certificate ends, in seconds since 1970; of several in one file the last."
    yield gauge("certificate_expiry_timestamp_seconds", words, ("purpose",), ends)


def _end(purpose: str, read: Callable[[], str | None]) -> float | None:
    try:
        pem = read()
        found = x509.load_pem_x509_certificates(pem.encode()) if pem else []
    except (OSError, ValueError) as error:
        log.debug("certificate not read", purpose=purpose, error=str(error))
        return None
    return max((each.not_valid_after_utc.timestamp() for each in found), default=None)
