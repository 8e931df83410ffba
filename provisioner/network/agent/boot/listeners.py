"""Connections in the boot plane: so many at a time, a thread for each; and bytes that are passed on unread."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from typing import Final

TRANSPARENT: Final = 19
"""IP_TRANSPARENT of linux/in.h: an address may be one's own that no device has."""
NO_CHECKSUM: Final = 11
"""SO_NO_CHECK: one that is left to a virtual card looks wrong to clients that read frames."""
CONNECT_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 900.0
"""A kubelet's watches say something every few minutes."""
PIECE_BYTES: Final = 65536
PAUSE_SECONDS: Final = 0.02
"""Between two connections. The DPU has one source port for each that it passes on, and for a minute after: without a
pause a host could take all those by which the DPU's own kubelet reaches the API server."""


class PeerListener:
    """Takes connections from `peer` until `close`, one every `PAUSE_SECONDS`: at most `most` at a time, one more is
    closed. `handle` is given each in a thread of its own."""

    def __init__(
        self, name: str, opened: socket.socket, peer: IPv4Address, most: int, handle: Callable[[socket.socket], None]
    ) -> None:
        self._name, self._opened, self._peer, self._handle = name, opened, str(peer), handle
        self._room = threading.Semaphore(most)
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._is_closed = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def close(self) -> None:
        """With all connections."""
        with self._lock:
            self._is_closed = True
            connections = list(self._connections)
        for each in (self._opened, *connections):
            _shut(each)
        self._opened.close()

    def _run(self) -> None:
        while True:
            try:
                connection, (address, _) = self._opened.accept()
            except OSError:
                if self._is_closed:
                    return
                threading.Event().wait(0.1)  # no file descriptors, say
                continue
            if address != self._peer or not self._room.acquire(blocking=False):
                connection.close()
                continue
            with self._lock:
                if self._is_closed:
                    connection.close()
                    return
                self._connections.add(connection)
            try:
                threading.Thread(target=self._serve, args=(connection,), name=self._name, daemon=True).start()
            except RuntimeError:  # no more threads are to be had now
                self._ended(connection)
            threading.Event().wait(PAUSE_SECONDS)

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._handle(connection)
        finally:
            self._ended(connection)

    def _ended(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)
        end(connection)
        self._room.release()


def listening(address: str, port: int, backlog: int) -> socket.socket:
    """In the namespace in which the thread is, whatever device there is. Raises: OSError."""
    with _opened(socket.SOCK_STREAM) as opened:
        opened.bind((address, port))
        opened.listen(backlog)
    return opened


def datagrams(address: str, port: int, device: str | None = None) -> socket.socket:
    """As `listening`, of UDP. `device`: by it alone, with broadcasts. Raises: OSError."""
    with _opened(socket.SOCK_DGRAM) as opened:
        if device is not None:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            opened.setsockopt(socket.SOL_SOCKET, NO_CHECKSUM, 1)
        opened.bind((address, port))
    return opened


@contextlib.contextmanager
def _opened(kind: socket.SocketKind) -> Iterator[socket.socket]:
    """Every address is its own. Closed only if it cannot be made what it is to be. Raises: OSError."""
    opened = socket.socket(socket.AF_INET, kind)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_IP, TRANSPARENT, 1)
        yield opened
    except OSError:
        opened.close()
        raise


def pass_on(connection: socket.socket, target: tuple[str, int]) -> None:
    """Both ways, until either side has ended or nothing was said for long. Raises nothing."""
    try:
        upstream = socket.create_connection(target, CONNECT_SECONDS)
    except OSError:
        return
    with upstream:
        for each in (connection, upstream):
            each.settimeout(IDLE_SECONDS)
        back = threading.Thread(target=_one_way, args=(upstream, connection), daemon=True)
        try:
            back.start()
        except RuntimeError:  # no more threads are to be had now
            return
        _one_way(connection, upstream)
        back.join(IDLE_SECONDS)
        _shut(upstream)


def _one_way(source: socket.socket, sink: socket.socket) -> None:
    """Until the source ends, which the sink is told; a fault ends both."""
    try:
        while piece := source.recv(PIECE_BYTES):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        _shut(source)
        _shut(sink)


def end(each: socket.socket) -> None:
    """Whoever waits at it in another thread wakes. Raises nothing."""
    _shut(each)
    each.close()


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
