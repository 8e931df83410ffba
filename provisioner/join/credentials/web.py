"""The authorization webhook's HTTP: POST /v1/authorize over TLS, for API servers that show a certificate.

Whoever has none may connect, and is cut off within 5 s, or earlier when there is no room: it keeps no API server from
its answers, without which that one goes on without our opinion.
"""

from __future__ import annotations

import json
import socket
import socketserver
import ssl
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import structlog

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.join.credentials.review import (
    CredentialDenied,
    CredentialList,
    MalformedReview,
    Requester,
    answer_of,
    judge,
    read_review,
)
from provisioner.node.http.lingering_close import linger
from provisioner.outbound.watchdog import Watch

log = structlog.get_logger()

PATH: Final = "/v1/authorize"
MAX_BODY_BYTES: Final = 65_536
REQUEST_SECONDS: Final = 5.0
"""From the first byte of a request to the last of the answer, with the close of a connection that is not kept;
also of a handshake."""
IDLE_SECONDS: Final = 180.0
"""An API server keeps its connections for its next request."""
MAX_CONNECTIONS: Final = 64
LOOK_AGAIN_SECONDS: Final = 10.0
TOLD_SECONDS: Final = 60.0
_MOST_TOLD: Final = 1024


class ServerTLS:
    """Certificate, key and the authorities of clients, read again when the files change. Usable from several threads.

    Raises: NeedsHuman if they cannot be read at first; later a change that cannot be read counts for nothing.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = (certificate, key, client_ca)
        self._clock = clock
        self._lock = threading.Lock()
        self._looked = clock()
        try:
            self._stamps, self._context = self._stat(), self._load()
        except (OSError, ValueError) as error:
            named = ", ".join(str(file) for file in self._files)
            raise NeedsHuman(
                f"TLS cannot be served by {named}: {error}",
                hint="name a certificate, its key, and the CA that signs the API servers' client certificate, as PEM",
            ) from error

    def context(self) -> ssl.SSLContext:
        """What connections that begin now are served with."""
        with self._lock:
            if self._clock() - self._looked >= LOOK_AGAIN_SECONDS:
                self._looked = self._clock()
                try:
                    stamps = self._stat()
                    if stamps != self._stamps:
                        self._context, self._stamps = self._load(), stamps
                        log.info("certificate of the authorizer read again")
                except (OSError, ValueError) as error:  # half written: the one from before still serves
                    log.warning("certificate of the authorizer cannot be read", error=str(error))
            return self._context

    def _stat(self) -> tuple[tuple[int, int], ...]:
        return tuple((found.st_mtime_ns, found.st_ino) for found in (file.stat() for file in self._files))

    def _load(self) -> ssl.SSLContext:
        certificate, key, client_ca = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(certificate, key)
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
        return context


class AuthorizerServer(socketserver.ThreadingTCPServer):
    """Answers reviews by `listed`. Raises: OSError if the address is taken."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: str, port: int, tls: ServerTLS, listed: CredentialList) -> None:
        self.tls, self.listed = tls, listed
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._lock = threading.Lock()
        self._open: dict[socket.socket, bool] = {}
        """Connections in the order in which they came, and whether the client has shown its certificate."""
        self._told: dict[tuple[str, str | None], float] = {}
        super().__init__((address, port), _Handler)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """TLS, of which nothing is waited for here: who does not go on holds up a thread of its own."""
        plain, source = self.socket.accept()
        try:
            return self.tls.context().wrap_socket(plain, server_side=True, do_handshake_on_connect=False), source
        except BaseException:
            plain.close()
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                strangers = (each for each, is_known in self._open.items() if not is_known)
                _cut(next(strangers, request))
            self._open[request] = False
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Also of the connections that API servers keep: no answer comes any more."""
        super().server_close()
        with self._lock:
            for each in self._open:
                _cut(each)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # who is gone, in whichever moment, is no fault
            log.exception("authorization review failed", source=client_address[0])

    def is_known(self, request: socket.socket) -> None:
        """The client of that connection has shown its certificate."""
        with self._lock:
            if request in self._open:
                self._open[request] = True

    def opine(self, asked: Requester) -> dict[str, Any]:
        opinion = judge(asked, self.listed)
        if isinstance(opinion, CredentialDenied) and self._is_news((asked.user, asked.credential)):
            log.warning("request denied", username=asked.user, reason=opinion.reason)
        return answer_of(opinion)

    def _is_news(self, key: tuple[str, str | None]) -> bool:
        """A thief asks without end; it is told once a minute."""
        now = time.monotonic()
        with self._lock:
            if now - self._told.get(key, -TOLD_SECONDS) < TOLD_SECONDS:
                return False
            if len(self._told) >= _MOST_TOLD:
                self._told.clear()
            self._told[key] = now
            return True


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    """The whole answer in one record."""
    server: AuthorizerServer

    def handle(self) -> None:
        connection: ssl.SSLSocket = self.request
        self._watch = Watch()
        connection.settimeout(REQUEST_SECONDS)
        with suppress(OSError, ValueError):  # no certificate, no TLS, no HTTP, gone, or too slow
            self._watch.begin(REQUEST_SECONDS, lambda: _cut(connection))
            try:
                connection.do_handshake()
            finally:
                self._watch.end()
            self.server.is_known(connection)
            connection.settimeout(IDLE_SECONDS)
            super().handle()

    def handle_one_request(self) -> None:
        connection: ssl.SSLSocket = self.request
        if not self.rfile.peek(1):  # type: ignore[attr-defined]
            self.close_connection = True
            return
        self._watch.begin(REQUEST_SECONDS, lambda: _cut(connection))
        try:
            super().handle_one_request()
            if self.close_connection:
                self.wfile.flush()
                linger(connection)
        finally:
            if self._watch.end():
                self.close_connection = True

    def do_POST(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._refuse(HTTPStatus.NOT_FOUND, f"reviews are answered at {PATH}")
            return
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or self.headers.get("Transfer-Encoding") is not None:
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "a review has a Content-Length")
            return
        if len(length) > 9 or int(length) > MAX_BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a review has at most {MAX_BODY_BYTES} bytes")
            return
        try:
            asked = read_review(json.loads(self.rfile.read(int(length))))
        except MalformedReview as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (ValueError, RecursionError):
            self._refuse(HTTPStatus.BAD_REQUEST, "the body is not JSON")
        else:
            self._send(HTTPStatus.OK, self.server.opine(asked))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        log.debug("request answered", source=self.client_address[0], words=format % args)

    def _refuse(self, status: HTTPStatus, words: str) -> None:
        self.close_connection = True  # of what was sent with it some may not be read
        self._send(status, {"message": words})

    def _send(self, status: HTTPStatus, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()


def _cut(connection: socket.socket) -> None:
    """From any thread. Not by the SSLSocket's own method, which would have its reader go on without TLS."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
