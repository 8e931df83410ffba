"""urllib3's connections with every wait bounded by the call that they are used in (see `deadline`, `watchdog`)."""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final, TypeVar, cast

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from provisioner.outbound.deadline import current_call
from provisioner.outbound.watchdog import Watch

T = TypeVar("T")

_READ_BYTES: Final = 64 * 1024


class BoundedSocket:
    """A connected socket, plain or TLS. Outside of a call it waits as long as its own time-out says."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._silence_seconds = self._armed = sock.gettimeout()
        self._watch = Watch()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def settimeout(self, seconds: float | None) -> None:
        self._silence_seconds = seconds
        self._arm()

    def sendall(self, data: Any) -> None:
        # Piece by piece: SSLSocket.sendall waits its time-out for each piece.
        with memoryview(data) as view, view.cast("B") as left:
            sent = 0
            while sent < len(left):
                sent += self._bounded(partial(self._sock.send, left[sent:]))

    def makefile(self, mode: str = "rb", *_: Any, **__: Any) -> io.BufferedReader:
        """For http.client, which reads all that it reads by it."""
        if mode != "rb":
            raise ValueError(f"mode {mode!r}: an answer is read as bytes")
        return io.BufferedReader(_BoundedReader(self, self._sock.makefile("rb", buffering=0)), _READ_BYTES)

    def receive(self, raw: io.RawIOBase, buffer: Any) -> int | None:
        """Read once. Raises: TooSlow, TooLarge; TimeoutError."""
        count = self._bounded(partial(raw.readinto, buffer))
        call = current_call()
        if call is not None and count:
            call.received(count)
        return count

    def abort(self) -> None:
        """End it from another thread: a reader wakes up at once. Raises: OSError if it is ended already."""
        # The plain socket's shutdown: that of SSLSocket would take the session from under the reader. urllib3's TLS
        # through a proxy's TLS is no socket, and has one.
        socket.socket.shutdown(getattr(self._sock, "socket", self._sock), socket.SHUT_RDWR)

    def _bounded(self, operation: Callable[[], T]) -> T:
        """One operation on the socket. Raises: TooSlow; TimeoutError."""
        seconds = self._arm()
        if seconds is None:
            return operation()
        with _watched(self._watch, seconds, self.abort):
            return operation()

    def _arm(self) -> float | None:
        call = current_call()
        seconds = self._silence_seconds
        if call is not None:
            left = call.remaining()
            seconds = left if seconds is None else min(seconds, left)
        if seconds != self._armed:
            self._sock.settimeout(seconds)
            self._armed = seconds
        return seconds


class _BoundedReader(io.RawIOBase):
    def __init__(self, sock: BoundedSocket, raw: io.RawIOBase) -> None:
        self._bounded, self._raw = sock, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self._bounded.receive(self._raw, buffer)

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()


class BoundedHTTPConnection(HTTPConnection):
    def connect(self) -> None:
        super().connect()
        self.sock = _bounded(self.sock)

    def _new_conn(self) -> socket.socket:
        return _connect(self, super()._new_conn)

    def _tunnel(self) -> None:
        _through_proxy(self, super()._tunnel)


class BoundedHTTPSConnection(HTTPSConnection):
    # CPython counts the time-out that `_connect` leaves for the handshake as a whole; the watchdog sees to it.
    def connect(self) -> None:
        with ExitStack() as self._connecting:
            super().connect()
        self.sock = _bounded(self.sock)

    def _new_conn(self) -> socket.socket:
        sock = _connect(self, super()._new_conn)
        self._connecting.enter_context(_ends_with_the_call(sock))
        return sock

    def _tunnel(self) -> None:
        _through_proxy(self, super()._tunnel)


class _HTTPPool(urllib3.HTTPConnectionPool):
    ConnectionCls = BoundedHTTPConnection


class _HTTPSPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = BoundedHTTPSConnection


def bound(pools: urllib3.PoolManager) -> None:
    """Let every connection that `pools` makes from here on be a bounded one."""
    pools.pool_classes_by_scheme = {"http": _HTTPPool, "https": _HTTPSPool}


def read_body(response: urllib3.BaseHTTPResponse) -> bytes:
    """The whole body, as it came. Raises: see `read_parts`."""
    body = b"".join(read_parts(response))
    response.release_conn()
    return body


def read_parts(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The body as it comes. Raises: TooSlow, TooLarge, inside of a call; urllib3's errors.

    A coding (gzip) is refused: it was not asked for, and a thousand bytes of it can be a gigabyte.
    """
    call = current_call()
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if call is not None and coding not in ("", "identity"):
        response.close()
        raise call.refuse(
            f"answered in Content-Encoding {coding[:40]!r}, which was not asked for; expected plain bytes"
        )
    while part := response.read(_READ_BYTES, decode_content=False):
        yield part


def _bounded(sock: socket.socket | None) -> socket.socket:
    return cast("socket.socket", BoundedSocket(cast("socket.socket", sock)))


def _connect(connection: HTTPConnection, unbounded: Any) -> socket.socket:
    """A connected socket, whose time-out is what is left of connecting, for the TLS handshake.

    urllib3's own would wait its time-out for each address of a name.
    """
    call = current_call()
    if call is None:
        return cast("socket.socket", unbounded())
    try:
        addresses = socket.getaddrinfo(connection.host, connection.port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        reason = error if isinstance(error, socket.gaierror) else socket.gaierror(str(error))
        raise NameResolutionError(connection.host, connection, reason) from error
    last: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        seconds = call.remaining() if connection.timeout is None else min(connection.timeout, call.remaining())
        sock = socket.socket(family, kind, protocol)
        try:
            for option in connection.socket_options or ():
                sock.setsockopt(*option)
            sock.settimeout(seconds)
            if connection.source_address:
                sock.bind(connection.source_address)
            sock.connect(address)
            sock.settimeout(min(seconds, call.remaining()))
        except OSError as error:
            sock.close()
            last = error
        else:
            sys.audit("http.client.connect", connection, connection.host, connection.port)
            return sock
    call.remaining()
    if isinstance(last, TimeoutError):
        raise ConnectTimeoutError(connection, f"no connection to {connection.host} in time") from last
    raise NewConnectionError(connection, f"Failed to establish a new connection: {last}") from last


@contextmanager
def _ends_with_the_call(sock: socket.socket) -> Iterator[None]:
    """Whatever is done on the connection of `sock` inside. Raises: TooSlow."""
    call = current_call()
    if call is None:
        yield
        return
    # For TLS the socket is made anew: by a duplicate the connection can be ended all the same.
    with sock.dup() as duplicate, _watched(Watch(), call.remaining(), partial(duplicate.shutdown, socket.SHUT_RDWR)):
        yield


@contextmanager
def _watched(watch: Watch, seconds: float, cut: Callable[[], None]) -> Iterator[None]:
    """Raises: TooSlow; TimeoutError."""
    watch.begin(seconds, cut)
    try:
        yield
    finally:
        if watch.end():
            call = current_call()
            if call is not None:
                call.remaining()
            raise TimeoutError("timed out")


def _through_proxy(connection: HTTPConnection, tunnel: Any) -> None:
    plain = connection.sock
    connection.sock = _bounded(plain)
    tunnel()
    connection.sock = plain
