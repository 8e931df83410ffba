"""The HTTPS connection to a BMC: its certificate pinned, nothing taken from the environment, nothing sent elsewhere.

What a BMC answers is bounded: the time of each request and of a whole call, bytes, values and nesting of a document,
redirects, requests of one call. It sends no cookies that we keep, and what sushy would log of it is not logged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final
from urllib.parse import SplitResult, urljoin, urlsplit

import requests
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from sushy.connector import Connector
from urllib3.util.ssl_ import create_urllib3_context

from provisioner.outbound.adapter import BoundedAdapter
from provisioner.outbound.deadline import TooLarge, TooSlow, bounded_call
from provisioner.outbound.json_body import values_in
from provisioner.power.bmc.power_controller import BmcRefused, fit

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 20.0
"""One request with its whole answer."""
CALL_SECONDS: Final = 30.0
"""All requests of one call together."""
CLOSE_SECONDS: Final = 5.0
"""The same for the end of a session."""
BODY_BYTES: Final = 256 * 1024
"""Of one answer. A ComputerSystem has 10 to 60 KiB."""
DOCUMENT_VALUES: Final = 10_000
DOCUMENT_DEPTH: Final = 32
REQUESTS: Final = 100
"""Of one call. The longest that is honest logs in, ends lost sessions, and resets: about ten, and two a session."""
REDIRECTS: Final = 3
PATH_LENGTH: Final = 1024
_ETAG: Final = re.compile(r"[!-~]{1,200}")
_BUSY_RETRY_SECONDS: Final = 1
BUSY_STATUS: Final = frozenset({409, 423, 429, 502, 503, 504})

# They log what a BMC sent, whole.
for _name in ("sushy", "urllib3.connection"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class OutOfBounds(requests.exceptions.ConnectionError):
    """The BMC answered with more than an answer may have. The words follow "BMC … was cut off: "."""


class BoundedCall:
    """The bounds of one call of ours to a BMC, which may take several requests."""

    def __init__(self) -> None:
        self._requests = 0

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """All requests inside are one call."""
        self._requests = 0
        with bounded_call("it", seconds=seconds):
            yield

    def count(self) -> None:
        """One more request. Raises: OutOfBounds."""
        self._requests += 1
        if self._requests > REQUESTS:
            raise OutOfBounds(f"one call led to more than {REQUESTS} requests")


class _PinnedAdapter(BoundedAdapter):
    """Accepts exactly one certificate, whatever name or date it bears: BMCs have wrong ones of both."""

    def __init__(self, fingerprint: str, **bounds: Any) -> None:
        self._fingerprint = fingerprint
        super().__init__("it", **bounds)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        # One that urllib3 makes for itself loads all authorities of the system, for each connection; none is asked.
        context = create_urllib3_context(cert_reqs=ssl.CERT_NONE)
        super().init_poolmanager(*args, assert_fingerprint=self._fingerprint, ssl_context=context, **kwargs)


class _BmcHttp(requests.Session):
    """Sends requests to one BMC, and to nobody else, whatever links and redirects say."""

    def __init__(self, url: str, fingerprint: str | None, call: BoundedCall, *, plain: bool, seconds: float) -> None:
        super().__init__()
        self._url, self._plain, self._call = urlsplit(url), plain, call
        # Neither a proxy nor a .netrc of the environment has any business between us and a BMC.
        self.trust_env = False
        self.max_redirects = REDIRECTS
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        bounds: dict[str, Any] = {"seconds": seconds, "max_bytes": BODY_BYTES, "redirects": True}
        self.mount("http://", BoundedAdapter("it", **bounds))
        adapter = BoundedAdapter("it", **bounds) if fingerprint is None else _PinnedAdapter(fingerprint, **bounds)
        self.mount("https://", adapter)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Every request passes here, also those that a redirect leads to. Raises: BmcRefused; errors of `requests`."""
        url = urlsplit(request.url or "")
        if url.scheme != "https" and not self._plain:
            raise BmcRefused(
                f"{fit(request.url)} is plain HTTP, by which password and session are readable on the way",
                reason="PlainHTTP",
                hint="write spec.bmc.address with https://, or set spec.bmc.allowPlainHTTP to true",
            )
        self._refuse_elsewhere(url)
        self._call.count()
        response = super().send(request, **kwargs)
        check_document(response.content)
        _find_etag(response)
        return response

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """What is not a GET is sent once more to where it was, with or without a last slash; and to another path with
        307 or 308, unless it has a password in it."""
        target, request = super().get_redirect_target(resp), resp.request
        if target is None or request.method in ("GET", "HEAD"):
            return target
        asked, told = urlsplit(request.url or ""), urlsplit(urljoin(request.url or "", target))
        is_same = told.path.rstrip("/") == asked.path.rstrip("/")
        if not is_same and (resp.status_code not in (307, 308) or b'"Password"' in _bytes(request.body)):
            raise OutOfBounds(f"it answered {request.method} with a redirect")
        resp.status_code = 308  # requests would make a GET of others
        return target

    def _refuse_elsewhere(self, url: SplitResult) -> None:
        expected = f"{self._url.scheme}://{self._url.netloc}/redfish/…"
        if _origin(url) == _origin(self._url) and is_path(url.path):
            return
        raise BmcRefused(
            f"BMC {self._url.geturl()} leads to {fit(url.geturl())}, expected only {expected}; nothing was sent there",
            reason="ForeignLink",
            hint="correct spec.bmc.address to the one that the BMC itself uses; if it is that, do not trust this BMC",
        )


class BmcConnector(Connector):  # type: ignore[misc]  # sushy has no types
    """sushy's connector with a pinned certificate (SHA-256 fingerprint), or the system's trust store without one."""

    def __init__(
        self,
        url: str,
        fingerprint: str | None,
        call: BoundedCall,
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
        self._session = _BmcHttp(url, fingerprint, call, plain=allow_plain_http, seconds=read_seconds)
        # sushy's word for: one connection per request.
        self._session.headers["Connection"] = "close"

    def _op(self, method: str, path: str = "", *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._op(method, urljoin(self._url, path), *args, **kwargs)
        finally:
            # sushy asks for one connection per request; a BMC that closes it without saying so in its answer would
            # break the next request, which must not be sent twice.
            self._session.close()


def _bytes(body: object) -> bytes:
    return body.encode() if isinstance(body, str) else body if isinstance(body, bytes) else b""


def _find_etag(response: requests.Response) -> None:
    """Some BMCs give the ETag of a resource only in it. Source: DSP0266, "ETags": it is the same value."""
    if response.request.method != "GET" or "ETag" in response.headers:
        return
    try:
        document = json.loads(response.content)
    except (ValueError, RecursionError):
        return
    etag = document.get("@odata.etag") if isinstance(document, dict) else None
    if isinstance(etag, str) and _ETAG.fullmatch(etag):
        response.headers["ETag"] = etag


def is_path(path: str) -> bool:
    """Whether a link's path may be followed on the BMC."""
    return path.startswith("/redfish/") and len(path) <= PATH_LENGTH and path.isprintable()


def check_document(body: bytes) -> None:
    """Refuse a JSON document that takes far more memory than its bytes. Raises: OutOfBounds."""
    if values_in(body) > DOCUMENT_VALUES:
        raise OutOfBounds(f"it sent a document of more than {DOCUMENT_VALUES} values")
    try:
        level: list[Any] = [json.loads(body)]
    except RecursionError as error:
        raise OutOfBounds(_NESTED) from error
    except ValueError:
        return  # whether JSON was due sushy knows
    for _ in range(DOCUMENT_DEPTH):
        level = [inner for value in level for inner in _inside(value)]
        if not level:
            return
    raise OutOfBounds(_NESTED)


_NESTED: Final = f"it sent a document that is nested more than {DOCUMENT_DEPTH} deep"


def _inside(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _origin(url: SplitResult) -> tuple[str, str | None, int | None, bool]:
    try:
        port = url.port or {"https": 443, "http": 80}.get(url.scheme)
    except ValueError:
        port = None
    return url.scheme, url.hostname, port, "@" in url.netloc


@dataclass(frozen=True)
class ConnectionCause:
    """Why a connection failed, in words that are the same every time.

    `certificate`: the BMC showed a wrong one; `bound`: it answered, with more than it may.
    """

    words: str
    certificate: bool = False
    bound: bool = False


def explain(error: BaseException) -> ConnectionCause:
    """What lies under the layers that sushy, requests and urllib3 put around a failed connection."""
    for layer in layers(error):
        if isinstance(layer, OutOfBounds | TooLarge):
            return ConnectionCause(str(layer), bound=True)
        if isinstance(layer, requests.exceptions.TooManyRedirects):
            return ConnectionCause(f"it redirected more than {REDIRECTS} times", bound=True)
        if isinstance(layer, TooSlow):
            return ConnectionCause("no complete answer in time")
        if isinstance(layer, requests.exceptions.ConnectTimeout):
            return ConnectionCause("no connection in time")
        if isinstance(layer, requests.exceptions.ReadTimeout | urllib3.exceptions.ReadTimeoutError):
            return ConnectionCause("no answer in time")
        if isinstance(layer, ssl.SSLCertVerificationError):
            return ConnectionCause(layer.verify_message or "certificate verification failed", certificate=True)
        if isinstance(layer, urllib3.exceptions.SSLError) and "Fingerprint" in str(layer):
            return ConnectionCause(str(layer), certificate=True)
        if isinstance(layer, OSError) and layer.strerror:
            return ConnectionCause(layer.strerror)
    return ConnectionCause("the connection broke")


def layers(error: BaseException) -> Iterator[BaseException]:
    """`error` and what lies under it."""
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
