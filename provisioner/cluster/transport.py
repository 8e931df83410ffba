"""Bytes to and from the API server: address, credentials and trust from the `kubernetes` package's configuration
(kubeconfig, in-cluster, exec plugins), requests by urllib3, failures as this project's errors.

The package's own generated client is not used: its models cost seconds of import time and hide what is on the wire.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import structlog
import urllib3

from provisioner.api.machinery.errors import Retryable
from provisioner.cluster.access import Access
from provisioner.cluster.bounded_json import OBJECT_BYTES, read_list
from provisioner.cluster.failures import Expired, Oversized, raise_failure
from provisioner.cluster.request_name import RequestObserver, verb_and_resource
from provisioner.outbound.deadline import TooLarge, bounded_call
from provisioner.outbound.sockets import BoundedSocket, read_body, read_parts

log = structlog.get_logger()

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0
"""For a whole request, from connecting to the last byte of its answer."""
MANY_TIMES: Final = 4
"""A request for many objects may take so many times as long, as long as none of its silences does."""


class Stream:
    """A response that is still being received, for `seconds` from here on."""

    def __init__(self, response: urllib3.BaseHTTPResponse, what: str, seconds: float) -> None:
        self._response = response
        self._what = what
        self._ends = time.monotonic() + seconds

    def lines(self) -> Iterator[bytes]:
        """Its lines, as they come. Raises: Retryable if the connection breaks or its time is over; Expired if one is so
        long that it cannot be read, and nothing after it."""
        line = bytearray()
        chunks = self._response.stream(65536)
        try:
            while chunk := self._next(chunks):
                *complete, rest = chunk.split(b"\n")
                for end in complete:
                    yield bytes(line + end)
                    line.clear()
                line += rest
                if len(line) > OBJECT_BYTES:
                    raise Expired(f"{self._what}: one object has more than {OBJECT_BYTES} bytes", after_seconds=0.0)
        except (urllib3.exceptions.HTTPError, OSError, ValueError, AttributeError) as error:
            # ValueError and AttributeError: abort() from another thread pulled the file away under the reader
            raise Retryable(f"{self._what}: {error}", after_seconds=0.0) from error

    def _next(self, chunks: Iterator[bytes]) -> bytes:
        """Nothing at the end. Only what is received here counts for the call, not what the caller does meanwhile."""
        with bounded_call("the API server", seconds=max(self._ends - time.monotonic(), 0.0)):
            return next(chunks, b"")

    def abort(self) -> None:
        """End it from another thread: the reader wakes up at once."""
        sock = getattr(getattr(self._response, "connection", None), "sock", None)
        if isinstance(sock, BoundedSocket):
            with suppress(OSError):
                sock.abort()


class Transport:
    """One API server and the credentials for it. Usable from several threads."""

    def __init__(
        self,
        access: Access,
        *,
        user_agent: str,
        as_user: str | None = None,
        as_groups: Sequence[str] = (),
        meter: RequestObserver | None = None,
    ) -> None:
        self._access = access
        self._user_agent = user_agent
        self._as_user, self._as_groups = as_user, tuple(as_groups)
        self._meter = meter

    def acting_as(self, user: str) -> Transport:
        """The same connections, each request as `user`: for who may impersonate it."""
        other = copy.copy(self)
        other._as_user, other._as_groups = user, ()  # noqa: SLF001 - its own copy
        return other

    @property
    def server_url(self) -> str:
        return str(self._access.configuration.host).rstrip("/")

    @property
    def ca_pem(self) -> str | None:
        """The authority that the API server's certificate is checked with; None if it is the system's."""
        file: str | None = self._access.configuration.ssl_ca_cert
        return Path(file).read_text() if file else None

    @property
    def client_certificate_pem(self) -> str | None:
        """The certificate by which the caller proves who it is; None if it has a token."""
        file: str | None = self._access.configuration.cert_file
        return Path(file).read_text() if file else None

    def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        timeout_seconds: float = READ_SECONDS,
        max_bytes: int = OBJECT_BYTES,
        take: Callable[[dict[str, Any]], object] | None = None,
    ) -> dict[str, Any]:
        """One request and its JSON answer. Raises: the errors of `failures`; Retryable if there was no answer,
        Oversized if it had more than `max_bytes`.

        It takes `timeout_seconds` at most. `take`: the answer is a list, which may take longer; its items are given to
        `take`, one after the other, and are not in what is returned.
        """
        self._access.renew()
        headers, seconds = self._headers(content_type), timeout_seconds * (MANY_TIMES if take is not None else 1)
        asked = verb_and_resource(method, path, query, content_type)
        try:
            with (
                self._measured(*asked) as answered,
                bounded_call("the API server", seconds=seconds, max_bytes=max_bytes),
            ):
                response = self._access.pool.request(
                    method,
                    self._url(path, query),
                    body=None if body is None else json.dumps(body).encode(),
                    headers=headers,
                    timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, timeout_seconds), read=timeout_seconds),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                )
                succeeded = response.status < HTTPStatus.MULTIPLE_CHOICES
                parts = read_parts(response)
                answer: Any = read_list(parts, take) if take is not None and succeeded else b"".join(parts)
                for _ in parts:
                    pass  # a connection is used again only after all of its answer was read
                response.release_conn()
                answered(response.status)
        except TooLarge as error:
            raise Oversized(f"{what}: no answer from {self.server_url}: {error}", after_seconds=0.0) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Retryable(f"{what}: no answer from {self.server_url}: {error}") from error
        except ValueError as error:
            raise Retryable(f"{what}: {self.server_url} answered no JSON: {error}") from error
        for warning in response.headers.getlist("Warning"):
            log.warning("api server warned", request=what, warning=warning)
        if not succeeded:
            raise_failure(response.status, response.headers, answer, what)
        return answer if take is not None else self._read_object(answer, what)

    def _read_object(self, data: bytes, what: str) -> dict[str, Any]:
        try:
            answer = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Retryable(f"{what}: {self.server_url} answered no JSON: {data[:200]!r}") from error
        if not isinstance(answer, dict):
            raise Retryable(f"{what}: {self.server_url} answered no object: {data[:200]!r}")
        return answer

    @contextmanager
    def stream(self, path: str, *, what: str, query: Mapping[str, Any], silence_seconds: float) -> Iterator[Stream]:
        """A GET whose answer comes bit by bit; it is broken off `silence_seconds` after its beginning, by which the
        API server was to end it.
        """
        self._access.renew()
        headers = self._headers(None)
        try:
            with (
                self._measured(*verb_and_resource("GET", path, query)) as answered,
                bounded_call("the API server", seconds=READ_SECONDS + silence_seconds, max_bytes=OBJECT_BYTES),
            ):
                response = self._access.pool.request(
                    "GET",
                    self._url(path, query),
                    headers=headers,
                    timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=silence_seconds),
                    retries=False,
                    redirect=False,
                    preload_content=False,
                )
                refusal = read_body(response) if response.status >= HTTPStatus.MULTIPLE_CHOICES else None
                answered(response.status)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Retryable(f"{what}: no answer from {self.server_url}: {error}") from error
        try:
            if refusal is not None:
                raise_failure(response.status, response.headers, refusal, what)
            yield Stream(response, what, silence_seconds)
        finally:
            response.close()  # not back into the pool: what is left of the answer would be read by the next request

    @contextmanager
    def _measured(self, verb: str, resource: str) -> Iterator[Callable[[int], None]]:
        """Count a request when it is over; it is given what to call with the answer's status, if there is one."""
        statuses: list[int] = []
        began = time.monotonic()
        try:
            yield statuses.append
        finally:
            if self._meter is not None:
                self._meter.seen(verb, resource, statuses[0] if statuses else None, time.monotonic() - began)

    def _url(self, path: str, query: Mapping[str, Any] | None) -> str:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        return f"{self.server_url}{path}?{urlencode(given)}" if given else f"{self.server_url}{path}"

    def _headers(self, content_type: str | None) -> urllib3.HTTPHeaderDict:
        headers = urllib3.HTTPHeaderDict({"Accept": "application/json", "User-Agent": self._user_agent})
        if self._as_user:
            headers["Impersonate-User"] = self._as_user
        for group in self._as_groups:
            headers.add("Impersonate-Group", group)
        if content_type:
            headers["Content-Type"] = content_type
        # Asks the exec plugin or the service account's file for a fresh token where the old one is about to expire.
        token = self._access.configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        return headers
