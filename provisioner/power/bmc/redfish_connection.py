"""The HTTPS connection to a BMC: its certificate pinned, every request bounded, nothing taken from the environment,
and one session at a time.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import requests
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from requests.adapters import HTTPAdapter
from sushy import exceptions
from sushy.auth import SessionOrBasicAuth
from sushy.connector import Connector

from provisioner.power.bmc.power_controller import BmcRefused

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 20.0
_BUSY_RETRY_SECONDS: Final = 1
BUSY_STATUS: Final = frozenset({409, 423, 429, 502, 503, 504})


class _PinnedAdapter(HTTPAdapter):
    """Accepts exactly one certificate, whatever name or date it bears: BMCs have wrong ones of both."""

    def __init__(self, fingerprint: str) -> None:
        self._fingerprint = fingerprint
        super().__init__()

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, assert_fingerprint=self._fingerprint, **kwargs)


class _NoPlainHttp(HTTPAdapter):
    """Sends nothing: also a BMC that redirects to http:// gets neither password nor session."""

    def send(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> requests.Response:
        raise BmcRefused(
            f"{request.url} is plain HTTP, by which password and session are readable on the way",
            reason="PlainHTTP",
            hint="write spec.bmc.address with https://, or set spec.bmc.allowPlainHTTP to true",
        )


class BmcConnector(Connector):  # type: ignore[misc]  # sushy has no types
    """sushy's connector with a pinned certificate (SHA-256 fingerprint), or the system's trust store without one."""

    def __init__(
        self,
        url: str,
        fingerprint: str | None,
        *,
        allow_plain_http: bool = False,
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
        if not allow_plain_http:
            self._session.mount("http://", _NoPlainHttp())
        if fingerprint is not None:
            self._session.mount("https://", _PinnedAdapter(fingerprint))

    def _op(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._op(*args, **kwargs)
        finally:
            # sushy asks for one connection per request; a BMC that closes it without saying so in its answer would
            # break the next request, which must not be sent twice.
            self._session.close()


class BmcSession(SessionOrBasicAuth):  # type: ignore[misc]  # sushy has no types
    """The session on one BMC, which has few of them; Basic authentication where the BMC opens none.

    sushy forgets a session as soon as the BMC refuses its token, and leaves it open if the BMC still knew it. Here a
    session is remembered until the BMC was asked to end it and has answered, and no other is opened before.
    """

    def __init__(self, username: str, password: str) -> None:
        super().__init__(username, password)
        self._login_lost = False
        """The BMC may have opened a session whose token or name never came here."""

    def refresh_session(self) -> None:
        if self.can_refresh_session():
            self._do_authenticate()

    def close(self) -> None:
        """Nothing: a root object of sushy's calls it whenever it is collected. `end` is meant for others."""

    def end(self) -> str | None:
        """End the session, if there is one. Returns its path if the BMC refuses to because of the token.

        Raises: SushyError, if the BMC gives no answer or is busy; the session is remembered then.
        """
        if self._login_lost:
            self._end_lost_login()
        path, refused = self._session_resource_id, None
        if path is None:
            return None
        try:
            self._connector.delete(path, headers={"X-Auth-Token": self._session_key}, allow_reauth=False)
        except exceptions.AccessError:
            refused = path
        except exceptions.HTTPError as error:
            if error.status_code in BUSY_STATUS:
                raise
        self.reset_session_attrs()
        return refused

    def _do_authenticate(self) -> None:
        """Called by sushy for the first request, and when the BMC refuses a token."""
        refused = self.end()
        try:
            super()._do_authenticate()
        except exceptions.ConnectionError as error:
            self._login_lost = not _never_sent(error)
            raise
        self._login_lost = self._session_key is not None and self._session_resource_id is None
        if refused is not None:
            # Mostly the BMC has ended it long ago; one that only did not recognise the token holds it open.
            with contextlib.suppress(exceptions.SushyError):
                self._connector.delete(refused, allow_reauth=False)

    def _end_lost_login(self) -> None:
        """End the sessions of our user. Where Basic authentication is refused they are left to the BMC's time-out."""
        connector = self._connector
        connector.set_http_basic_auth(self._username, self._password)
        try:
            sessions = connector.get(self._root_resource.get_sessions_path(), allow_reauth=False).json()
            for path in [member["@odata.id"] for member in sessions["Members"]]:
                if connector.get(path, allow_reauth=False).json().get("UserName") == self._username:
                    connector.delete(path, allow_reauth=False)
        except exceptions.HTTPError as error:
            if error.status_code in BUSY_STATUS:
                raise
        finally:
            self.reset_session_attrs()
        self._login_lost = False


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


def _never_sent(error: BaseException) -> bool:
    """Whether there was no connection to send the request by."""
    unconnected = (requests.exceptions.ConnectTimeout, urllib3.exceptions.NewConnectionError, ssl.SSLError)
    return any(isinstance(layer, unconnected) for layer in _layers(error))


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
