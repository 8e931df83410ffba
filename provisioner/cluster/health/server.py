"""A small HTTP server for probes: one thread, few connections, a deadline for each, nothing kept open.

Whoever reaches the port may open connections and say nothing. It costs neither a thread nor a probe: who has been
connected longest is dropped for who comes when there are too many.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, urlsplit

import structlog

from provisioner.node.http.lingering_close import LingeringClose

log = structlog.get_logger()

MAX_CONNECTIONS: Final = 32
MAX_REQUEST_BYTES: Final = 4096
REQUEST_SECONDS: Final = 5.0
"""From connecting to the end."""
_TURN_SECONDS: Final = 0.5
_REST_SECONDS: Final = 0.05

Page = Callable[[bool, Collection[str]], tuple[int, str]]
"""Given whether `?verbose` was asked, and the names of `?exclude=`: the status and the body."""


@dataclass(eq=False)
class _Connection:
    """One client, from connecting to the end. closing: once it has been answered."""

    socket: socket.socket
    ends: float
    received: bytes = b""
    to_send: bytes = field(default=b"", repr=False)
    closing: LingeringClose | None = None


class HealthServer:
    """Answers GET and HEAD of `pages` (path → page) in a thread of its own. Raises: OSError if the address is taken."""

    def __init__(self, address: str, port: int, pages: Mapping[str, Page]) -> None:
        self._pages = dict(pages)
        self._selector = selectors.DefaultSelector()
        self._connections: dict[_Connection, None] = {}
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        # [::] is both families: a kubelet asks by whichever the pod's address is of.
        both = address == "::" and socket.has_dualstack_ipv6()
        self._listener = socket.create_server((address, port), family=family, backlog=64, dualstack_ipv6=both)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self.port = int(self._listener.getsockname()[1])
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and free the port."""
        self._closed.set()
        self._thread.join(REQUEST_SECONDS)

    def _serve(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(_TURN_SECONDS):
                try:
                    if key.data is None:
                        self._accept()
                    else:
                        self._go_on(key.data)
                except Exception:
                    log.exception("health request failed")
                    if key.data is not None:
                        self._drop(key.data)
            now = time.monotonic()
            for connection in [each for each in self._connections if each.ends <= now]:
                self._drop(connection)
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()
        self._listener.close()

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:  # who connected may be gone already; or there are no descriptors left, and it is asked again
            time.sleep(_REST_SECONDS)
            return
        accepted.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS:
            self._drop(next(iter(self._connections)))
        connection = _Connection(accepted, time.monotonic() + REQUEST_SECONDS)
        self._connections[connection] = None
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _go_on(self, connection: _Connection) -> None:
        try:
            if connection.closing is not None:
                if not connection.closing.discard():
                    self._drop(connection)
                return
            if not connection.to_send:
                self._receive(connection)
            if connection.to_send:
                sent = connection.socket.send(connection.to_send)
                connection.to_send = connection.to_send[sent:]
                if not connection.to_send:
                    self._end(connection)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _receive(self, connection: _Connection) -> None:
        chunk = connection.socket.recv(MAX_REQUEST_BYTES)
        connection.received += chunk
        is_whole = b"\r\n\r\n" in connection.received
        if not chunk and not is_whole:
            self._drop(connection)
        elif is_whole:
            connection.to_send = self._answer(connection.received)
        elif len(connection.received) >= MAX_REQUEST_BYTES:
            connection.to_send = _response(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "too large\n")
        if connection.to_send:
            self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)

    def _answer(self, request: bytes) -> bytes:
        line = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(line) != 3 or not line[2].startswith("HTTP/1."):
            return _response(HTTPStatus.BAD_REQUEST, "expected a request of HTTP/1\n")
        if line[0] not in ("GET", "HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD are answered\n", "Allow: GET, HEAD\r\n")
        try:
            target = urlsplit(line[1])
            query = parse_qs(target.query, keep_blank_values=True, max_num_fields=50)
        except ValueError:
            return _response(HTTPStatus.BAD_REQUEST, "expected a path\n")
        page = self._pages.get(target.path)
        if page is None:
            return _response(HTTPStatus.NOT_FOUND, f"there is {', '.join(self._pages)}\n", head=line[0] == "HEAD")
        status, body = page("verbose" in query, query.get("exclude", ()))
        return _response(HTTPStatus(status), body, head=line[0] == "HEAD")

    def _end(self, connection: _Connection) -> None:
        """Once all has been sent."""
        connection.closing = LingeringClose(connection.socket)
        connection.ends = min(connection.ends, connection.closing.ends)
        self._selector.modify(connection.socket, selectors.EVENT_READ, connection)

    def _drop(self, connection: _Connection) -> None:
        if connection not in self._connections:
            return
        del self._connections[connection]
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.socket)
        with suppress(OSError):
            connection.socket.shutdown(socket.SHUT_WR)
        connection.socket.close()


def _response(status: HTTPStatus, body: str, more: str = "", *, head: bool = False) -> bytes:
    data = body.encode()
    headers = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nContent-Length: {len(data)}\r\n"
        f"Connection: close\r\n{more}\r\n"
    )
    return headers.encode() + (b"" if head else data)
