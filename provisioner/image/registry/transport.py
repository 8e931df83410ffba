"""One call to a registry: bounded in time and size, answering when it asks who calls, led elsewhere without what opens
the registry, and made again where that may help."""

from __future__ import annotations

import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.cookiejar import DefaultCookiePolicy
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from provisioner.api.machinery.backoff import backoff_seconds
from provisioner.api.machinery.errors import NeedsHuman, ProvisionerError, Refused, Retryable
from provisioner.image.registry.access import RegistryAccess
from provisioner.image.registry.failures import raise_failure
from provisioner.image.registry.tokens import TokenSource
from provisioner.outbound.adapter import StreamedAdapter
from provisioner.outbound.deadline import TooLarge, bounded_call
from provisioner.outbound.sockets import read_parts

T = TypeVar("T")

SHORT_BYTES: Final = 64 * 1024
"""Of an answer that is not said to be longer."""
PROGRESS_BYTES: Final = 1 << 20
"""An attempt that brought as much is none that failed: slow links end no transfer, and single bytes keep none going."""
_HOPS: Final = 3
_REDIRECTS: Final = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class RegistryResponse:
    """Status and headers, and the body as it comes."""

    status: int
    headers: Mapping[str, str]
    parts: Iterator[bytes]
    url: str

    def body(self) -> bytes:
        return b"".join(self.parts)


@dataclass(frozen=True, kw_only=True)
class RegistryCall:
    """What is asked. `what`, for people: `give blob sha256:…`. `good`: statuses that `receive` is called for."""

    method: str
    url: str
    what: str
    good: tuple[int, ...] = (200,)
    headers: Mapping[str, str] | None = None
    body: bytes | None = None
    actions: str = "pull"
    max_bytes: int = SHORT_BYTES
    seconds: float | None = None


class RegistryTransport:
    """To one repository. Used by one thread. Errors are those of `failures`, and name the registry."""

    def __init__(
        self,
        access: RegistryAccess,
        *,
        sleep: Callable[[float], None] = time.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self.access = access
        self._sleep, self._spread = sleep, spread
        self._authority = TokenSource(access)
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, StreamedAdapter())
        # Neither a proxy nor a .netrc of the environment has any business here, and a cookie would be an identity.
        self._session.trust_env = False
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.verify = str(access.ca) if access.ca else True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def attempt(self, work: Callable[[], T], progress: Callable[[], int] = lambda: 0) -> T:
        """Do `work`, and again when that may help: so often in a row as the limits say, without PROGRESS_BYTES more of
        `progress`.

        Raises: Retryable of the last attempt.
        """
        limits = self.access.limits
        failures, before = 0, progress()
        while True:
            try:
                return work()
            except Retryable as error:
                now = progress()
                failures += 1
                if now - before >= PROGRESS_BYTES:
                    failures, before = 1, now
                longest = limits.longest_wait_seconds
                backoff = backoff_seconds(failures, first=limits.first_wait_seconds, cap=longest, jitter=self._spread)
                wait = max(error.after_seconds, backoff)
                if failures >= limits.attempts or error.after_seconds > longest:
                    raise
                self._sleep(min(wait, longest))

    def ask(self, call: RegistryCall, receive: Callable[[RegistryResponse], T]) -> T:
        """`exchange`, attempted."""
        return self.attempt(lambda: self.exchange(call, receive))

    def exchange(self, call: RegistryCall, receive: Callable[[RegistryResponse], T]) -> T:
        """Make the call once, and return what `receive` makes of its answer, inside of the call's time.

        A refusal to a stranger is answered with who calls, once; a redirect is followed for what only reads.
        """
        seconds = call.seconds if call.seconds is not None else self.access.limits.call_seconds
        try:
            with bounded_call(f"registry {self.access.repository.host}", seconds=seconds):
                return self._send(call, receive, call.url, hops=_HOPS, may_ask=True)
        except ProvisionerError:
            raise
        except TooLarge as error:
            raise self._refused(call, str(error)) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, UnicodeError) as error:
            raise self._unreached(call, error) from error

    def _send(
        self, call: RegistryCall, receive: Callable[[RegistryResponse], T], url: str, *, hops: int, may_ask: bool
    ) -> T:
        own = self.is_own(url)
        headers = dict(call.headers or {})
        if own and (header := self._authority.header) is not None:
            headers["Authorization"] = header.reveal()
        with (
            bounded_call(f"registry {self.access.repository.host}", seconds=1e9, max_bytes=call.max_bytes),
            closing(self._request(call.method, url, headers, call.body)) as response,
        ):
            status, answered = response.status_code, response.headers
            if status in call.good:
                return receive(RegistryResponse(status, answered, read_parts(response.raw), url))
            challenge = answered.get("WWW-Authenticate") if status == HTTPStatus.UNAUTHORIZED else None
            if status not in _REDIRECTS and not (challenge and own and may_ask):
                words = b"" if call.method == "HEAD" else b"".join(read_parts(response.raw))
                raise_failure(status, answered, words, self._name(call))
        if challenge is not None:
            self._authority.answer(challenge, call.actions, self._fetch_token)
            return self._send(call, receive, url, hops=hops, may_ask=False)
        return self._send(call, receive, self._led(call, url, answered, hops), hops=hops - 1, may_ask=may_ask)

    def _led(self, call: RegistryCall, url: str, headers: Mapping[str, str], hops: int) -> str:
        location = headers.get("Location", "")
        target = urljoin(url, location)
        shown = target.partition("?")[0][:200]  # what is behind it may open the storage
        if call.method not in ("GET", "HEAD"):
            raise self._refused(call, f"redirects what is written, to {shown!r}")
        if hops == 0 or not location:
            raise self._refused(call, f"redirects more than {_HOPS} times, at last to {shown!r}")
        allowed = ("http", "https") if self.access.plain_http else ("https",)
        if urlsplit(target).scheme not in allowed:
            raise self._refused(call, f"redirects from TLS to {shown!r}")
        return target

    def _fetch_token(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """A token's JSON. It is not led anywhere: what is sent there opens the registry."""
        seconds, host = self.access.limits.call_seconds, self.access.repository.host
        with (
            bounded_call(f"registry {host}", seconds=seconds, max_bytes=SHORT_BYTES),
            closing(self._request(method, url, headers, body)) as response,
        ):
            data = b"".join(read_parts(response.raw))
        what = f"{self.access.repository} has no token for the caller"
        if response.status_code in _REDIRECTS:
            raise Refused(f"{what}: {url[:200]} redirects", hint="correct the registry's auth.token.realm")
        if response.status_code != HTTPStatus.OK:
            raise_failure(response.status_code, response.headers, data, what)
        return data

    def _request(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> requests.Response:
        limits = self.access.limits
        return self._session.request(
            method,
            url,
            headers=dict(headers),
            data=body,
            timeout=(limits.connect_seconds, limits.silence_seconds),
            allow_redirects=False,
            stream=True,
        )

    def is_own(self, url: str) -> bool:
        """Whether it is the registry itself that would be asked."""
        return _origin(url) == _origin(self.access.root)

    def _name(self, call: RegistryCall) -> str:
        return f"{self.access.repository} did not {call.what}"

    def _refused(self, call: RegistryCall, words: str) -> Refused:
        return Refused(f"{self._name(call)}: {words}", hint="is it the right registry, and not altered on the way?")

    def _unreached(self, call: RegistryCall, error: Exception) -> ProvisionerError:
        cause = _certificate_error(error)
        if cause is not None:
            return NeedsHuman(
                f"{self._name(call)}: its certificate is not believed ({cause.verify_message})",
                hint="name the CA that signed it: --registry-ca FILE",
            )
        return Retryable(f"{self._name(call)}: {_words(error)}", after_seconds=0.0)


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    following: list[BaseException | None] = [error]
    while following:
        current = following.pop()
        if current is None or any(current is each for each in seen) or len(seen) > 32:
            continue
        seen.append(current)
        yield current
        following += [current.__cause__, current.__context__, getattr(current, "reason", None)]
        following += [each for each in current.args if isinstance(each, BaseException)]


def _certificate_error(error: Exception) -> ssl.SSLCertVerificationError | None:
    return next((each for each in _chain(error) if isinstance(each, ssl.SSLCertVerificationError)), None)


def _words(error: Exception) -> str:
    """Of the innermost cause, which says it in the system's words; without a query, which may be a secret."""
    inner = [each for each in _chain(error) if isinstance(each, OSError) and each.errno is not None and each.strerror]
    said = inner[-1].strerror if inner else str(error)
    return str(said).partition("?")[0][:300]
