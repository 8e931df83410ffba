"""The answer of one image source to a GET, bounded in bytes and in the time that it lets this machine wait.

Only waiting counts: this machine runs a fetch when nothing else wants the processor, which makes no source slow.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable
from typing import Any

from provisioner.node.http.post import split_url

WINDOW_SECONDS = 15.0
"""How long a source may be slow, and may let a small file wait as a whole."""
DEFAULT_RETRY_SECONDS = 10
"""Where a source that is full does not say when to ask again."""
OVERHEAD_BYTES = 1 << 18
"""Of headers; with a 64th of the file, of the lines between chunks."""


class SourceTooSlow(OSError):
    """The source gave less than it must; the message says how much."""


class Declined(OSError):
    """The source answers with an HTTP status that is no success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class SourceFull(Declined):
    """The source sends to as many as it can (HTTP 503), and wants to be asked again after so many seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(503)
        self.retry_after = retry_after


def read_retry_after(said: str | None) -> float:
    """Seconds, 1 to 60: a source says when it is worth asking, not for how long this machine waits."""
    seconds = int(said) if said is not None and said.isdecimal() and len(said) < 6 else DEFAULT_RETRY_SECONDS
    return float(min(max(seconds, 1), 60))


Connect = Callable[[str, int, float], socket.socket]
"""Host, port, and how many seconds each of connecting and the handshake may take."""


def _connect_plain(host: str, port: int, timeout_seconds: float) -> socket.socket:
    return socket.create_connection((host, port), timeout=timeout_seconds)


class Pace:
    """What one answer has cost. `least_rate`: in bytes/s; None: all of it must be there within one window."""

    def __init__(self, limit_bytes: int, least_rate: int | None, clock: Callable[[], float]) -> None:
        self.left_bytes = limit_bytes
        self.least_rate = least_rate
        self.clock = clock
        self.waited = 0.0
        self.got = 0

    def window_left(self) -> float:
        return max(WINDOW_SECONDS - self.waited, 0.001)

    def add(self, waited: float, count: int) -> None:
        """Raises: TooSlow; OSError if it is more than the limit."""
        self.waited += waited
        self.got += count
        self.left_bytes -= count
        if self.left_bytes < 0:
            raise OSError("it sends without an end")
        if self.waited < WINDOW_SECONDS:
            return
        if self.least_rate is None:
            raise SourceTooSlow(f"not whole after {self.waited:.0f} s")
        if self.got < self.least_rate * self.waited:
            rate = self.got / self.waited
            raise SourceTooSlow(f"it gave {rate / 1024:.0f} KiB/s, least is {self.least_rate / 1024:.0f} KiB/s")
        self.waited, self.got = 0.0, 0


class _PacedReader(io.RawIOBase):
    def __init__(self, sock: socket.socket, pace: Pace) -> None:
        self._sock, self._pace = sock, pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            began = self._pace.clock()
            self._sock.settimeout(self._pace.window_left())
            try:
                count = self._sock.recv_into(buffer)
            except TimeoutError:
                self._pace.add(max(self._pace.clock() - began, self._pace.window_left()), 0)
                continue  # with a least rate of nothing
            self._pace.add(self._pace.clock() - began, count)
            return count


class _PacedSocket:
    """As much of a socket as http.client uses. What is read comes at the pace's bounds, headers and chunks as well."""

    def __init__(self, sock: socket.socket, pace: Pace) -> None:
        self._sock, self._pace = sock, pace

    def sendall(self, data: bytes) -> None:
        self._sock.sendall(data)

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_PacedReader(self._sock, self._pace), 1 << 16)

    def close(self) -> None:
        """http.client lets go of a connection before its body is read."""


class PartialBody:
    """The body of an HTTP answer from byte `start` on. Raises (also while it is read): OSError,
    http.client.HTTPException, ValueError; TooSlow among them.

    `connect`: opens TLS to a host that is believed, as `authorities.Authorities.connect`; without it https is refused.
    """

    def __init__(
        self,
        url: str,
        start: int,
        *,
        size_bytes: int,
        least_rate: int | None,
        connect: Connect | None = None,
    ) -> None:
        tls, host, port, path = split_url(url)
        if tls and connect is None:
            raise ValueError("TLS needs authorities that are believed")
        pace = Pace(OVERHEAD_BYTES, least_rate, time.monotonic)
        opens = connect if tls and connect is not None else _connect_plain
        self._sock = opens(host, port, WINDOW_SECONDS)
        try:
            # A small window keeps a fetch beside running jobs from filling the way to this machine in bursts.
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            connection = http.client.HTTPConnection(host, port)
            connection.sock = _PacedSocket(self._sock, pace)
            headers = {"User-Agent": "provisioner-node", **({"Range": f"bytes={start}-"} if start else {})}
            connection.request("GET", path, headers=headers)
            self._answer = connection.getresponse()
            pace.left_bytes += size_bytes + size_bytes // 64
            self._check(start)
        except BaseException:
            self._sock.close()
            raise

    def _check(self, start: int) -> None:
        status, coding = self._answer.status, self._answer.headers.get("Content-Encoding", "identity")
        if coding.lower() != "identity":
            raise OSError(f"Content-Encoding {coding[:40]!r}, which was not asked for")
        if start and status == 206:
            observed = self._answer.headers.get("Content-Range", "none")
            if not observed.startswith(f"bytes {start}-"):
                raise OSError(f"Content-Range {observed[:80]!r}, asked for was what begins at {start}")
        elif status == 503:
            raise SourceFull(read_retry_after(self._answer.headers.get("Retry-After")))
        elif status != 200:
            raise Declined(status)
        elif start:
            self._skip(start)

    def _skip(self, count: int) -> None:
        # This source knows no ranges.
        while count > 0:
            piece = self.read(min(1 << 16, count))
            if not piece:
                raise OSError("truncated before the part that is missing")
            count -= len(piece)

    def read(self, size: int) -> bytes:
        """At most `size` bytes, as soon as there are any; none at the end."""
        return self._answer.read1(size)

    @property
    def left_bytes(self) -> int | None:
        """What is still to come by its Content-Length; None if it has none. Once `read` gave nothing: what was cut."""
        return self._answer.length

    def __enter__(self) -> PartialBody:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()
