"""The HTTPS connection to a BMC: its certificate pinned, every request bounded, nothing taken from the environment."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import requests
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from requests.adapters import HTTPAdapter
from sushy.connector import Connector

from provisioner.power.power_controller import BmcRefused

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 20.0
_BUSY_RETRY_SECONDS: Final = 1


class _PinnedAdapter(HTTPAdapter):
    """Accepts exactly one certificate, whatever name or date it bears: BMCs have wrong ones of both."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, assert_fingerprint=self._fingerprint, **kwargs)


class BmcConnector(Connector):  # type: ignore[misc]  # sushy has no types
    """sushy's connector with a pinned certificate (SHA-256 fingerprint), or the system's trust store without one."""

    def __init__(
        self,
        url: str,
        fingerprint: str | None,
        *,
        connect_seconds: float = CONNECT_SECONDS,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        super().__init__(
            url,
            # The adapter's comparison replaces the check against a trust store.
            verify=fingerprint is None,
            # One attempt: a Reset that timed out may have happened, and must not be sent twice unseen.
            server_side_retries=1,
            server_side_retries_delay=_BUSY_RETRY_SECONDS,
            default_request_timeout=read_seconds,
            connect_timeout=connect_seconds,
        )
        # Neither a proxy nor a .netrc of the environment has any business between us and a BMC.
        self._session.trust_env = False
        if fingerprint is not None:
            self._session.mount("https://", _PinnedAdapter(fingerprint))

    def _op(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._op(*args, **kwargs)
        finally:
            # sushy asks for one connection per request; a BMC that closes it without saying so in its answer would
            # break the next request, which must not be sent twice.
            self._session.close()


@dataclass(frozen=True)
class Cause:
    """Why a connection failed, in words that are the same every time; `certificate`: the BMC showed a wrong one."""

    words: str
    certificate: bool = False


def explain(error: BaseException) -> Cause:
    """What lies under the layers that sushy, requests and urllib3 put around a failed connection."""
    for layer in _layers(error):
        if isinstance(layer, requests.exceptions.ConnectTimeout):
            return Cause("no connection in time")
        if isinstance(layer, requests.exceptions.ReadTimeout):
            return Cause("no answer in time")
        if isinstance(layer, ssl.SSLCertVerificationError):
            return Cause(layer.verify_message or "certificate verification failed", certificate=True)
        if isinstance(layer, urllib3.exceptions.SSLError) and "Fingerprint" in str(layer):
            return Cause(str(layer), certificate=True)
        if isinstance(layer, OSError) and layer.strerror:
            return Cause(layer.strerror)
    return Cause("the connection broke")


def _layers(error: BaseException) -> Iterator[BaseException]:
    pending: list[object] = [error]
    seen: set[int] = set()
    while pending:
        layer = pending.pop(0)
        if not isinstance(layer, BaseException) or id(layer) in seen:
            continue
        seen.add(id(layer))
        yield layer
        pending += [layer.__cause__, layer.__context__, getattr(layer, "reason", None), *layer.args]


def fingerprint_of(certificate_pem: str) -> str:
    """SHA-256 of the certificate, hexadecimal. Raises: BmcRefused if it is no certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
    except ValueError as error:
        raise BmcRefused(
            f"spec.bmc.certificate is not a PEM certificate: {error}",
            reason="CertificateInvalid",
            hint="copy it from the BMC: openssl s_client -connect ADDRESS:443 </dev/null | openssl x509",
        ) from error
    return certificate.fingerprint(hashes.SHA256()).hex()
