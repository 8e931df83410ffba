"""Servers of images that keep to no protocol: a cache, `/cache/images`, and the boot host, `/images`, on one port."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import re
import socket
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Request:
    """One GET. `start`: of its Range, 0 without one. `stopped`: set once the test is over."""

    path: str
    start: int
    stopped: threading.Event

    @property
    def source(self) -> str:
        return "cache" if self.path.startswith("/cache/") else "boot host"

    @property
    def file(self) -> str:
        return self.path.rpartition("/")[2]


Behaviour = Callable[[socket.socket, Request], None]
"""Answers a request on its connection, which is closed afterwards; an OSError is the client's leaving."""


def reply(body: bytes, *, status: str = "200 OK", headers: str = "", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n{headers}Connection: close\r\n\r\n".encode() + body


def ranged(body: bytes, start: int) -> bytes:
    """As a server that knows ranges answers."""
    if not start:
        return reply(body)
    return reply(
        body[start:],
        status="206 Partial Content",
        headers=f"Content-Range: bytes {start}-{len(body) - 1}/{len(body)}\r\n",
    )


def honest(body: bytes) -> Behaviour:
    return lambda connection, request: connection.sendall(ranged(body, request.start))


def sends(answer: bytes) -> Behaviour:
    return lambda connection, request: connection.sendall(answer)


def drips(begun: bytes, piece: bytes = b"x", every_seconds: float = 0.05) -> Behaviour:
    """`begun` at once, then a piece at a time until the client leaves."""

    def answer(connection: socket.socket, request: Request) -> None:
        connection.sendall(begun)
        while not request.stopped.wait(every_seconds):
            connection.sendall(piece)

    return answer


def pours(begun: bytes, piece: bytes) -> Behaviour:
    """As fast as it goes, without an end."""

    def answer(connection: socket.socket, request: Request) -> None:
        connection.sendall(begun)
        while not request.stopped.is_set():
            connection.sendall(piece)

    return answer


@dataclass
class Mirrors:
    """Cache and boot host. `behaviours`: by source and file; anything else is 404."""

    behaviours: dict[tuple[str, str], Behaviour]
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    """What stage-1 reported to `/v1/progress`."""

    def asked(self, source: str, file: str) -> list[int]:
        """The starts of the requests for a file, in order."""
        return [request.start for request in self.requests if (request.source, request.file) == (source, file)]


@contextmanager
def serving(behaviours: dict[tuple[str, str], Behaviour]) -> Iterator[Mirrors]:
    stopped = threading.Event()
    mirrors = Mirrors(behaviours)

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                part = connection.recv(65536)
                if not part:
                    return
                head += part
            head, _, body = head.partition(b"\r\n\r\n")
            words = head.decode()
            method, path, _ = words.split(" ", 2)
            if method == "POST":
                length = re.search(r"(?i)^content-length: (\d+)", words, re.MULTILINE)
                while length is not None and len(body) < int(length[1]):
                    body += connection.recv(65536)
                fields = urllib.parse.parse_qs(body.decode())
                mirrors.messages += fields.get("message", [])
                accept = mirrors.behaviours.get(("boot host", path.rpartition("/")[2]), sends(reply(b"")))
                accept(connection, Request(path, 0, stopped))
                return
            start = re.search(r"(?i)^range: bytes=(\d+)-", words, re.MULTILINE)
            request = Request(path, int(start[1]) if start is not None else 0, stopped)
            mirrors.requests.append(request)
            absent = sends(reply(b"", status="404 Not Found"))
            mirrors.behaviours.get((request.source, request.file), absent)(connection, request)

    def accept() -> None:
        while not stopped.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        mirrors.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield mirrors
        finally:
            stopped.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


# Not so little that the buffer of a socket holds it.
ROOT = hashlib.shake_256(b"root").digest(6_000_000)
BEGUN = 1_500_000
FALSE = b"\0" * len(ROOT)


@dataclass(frozen=True)
class Lie:
    """What a cache answers in place of ROOT, which is the layer driver of an image, the words in which stage-1 and the
    agent say so, and whether what it gave is kept: then the next source is asked for the rest."""

    behaviour: Behaviour
    stage1: str
    agent: str
    kept: bool = False


def head(length: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()


def truncating(body: bytes, length: int) -> Behaviour:
    """Honest, but for a connection that breaks."""
    return sends(head(len(body)) + body[:length])


def redirects(connection: socket.socket, request: Request) -> None:
    connection.sendall(reply(b"", status="302 Found", headers=f"Location: {request.path}\r\n"))


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_COMPRESSED = reply(gzip.compress(ROOT), headers="Content-Encoding: gzip\r\n")
_SLOW = "expected at least 19 KiB/s"
_NO_END = "without an end"
LEAST_RATE = 20_000
LIES = {
    "drips": Lie(drips(head(len(ROOT)) + ROOT[:BEGUN]), _SLOW, "least is 20 KiB/s", kept=True),
    "falls silent": Lie(drips(head(len(ROOT)) + ROOT[:BEGUN], b""), _SLOW, "least is 20 KiB/s", kept=True),
    "drips its header": Lie(drips(b"HTTP/1.1 200 OK\r\nX: "), _SLOW, "least is 20 KiB/s"),
    "sends headers without end": Lie(pours(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 500), "", "more than 100 headers"),
    "continues without end": Lie(pours(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 99), "", _NO_END),
    "sends bytes without end": Lie(pours(head(1 << 40), b"x" * 65536), "more than 6000000 bytes", "more than 6000000"),
    "sends chunks without end": Lie(
        pours(CHUNKED, b"1000\r\n" + b"x" * 4096 + b"\r\n"), "more than 6000000 bytes", "more than 6000000"
    ),
    "says a length of nothing known": Lie(sends(head(10**30) + ROOT[:99]), "layer driver: ", "truncated: 99"),
    "is cut": Lie(truncating(ROOT, BEGUN), f"truncated: {BEGUN} of", "truncated: 1500000 of", kept=True),
    "is cut within a chunk": Lie(
        sends(CHUNKED + b"f0000000\r\n" + ROOT[:BEGUN]), f"truncated: {BEGUN} of", "IncompleteRead", kept=True
    ),
    "is altered": Lie(sends(reply(FALSE)), "altered: sha256", "is altered: sha256"),
    "is compressed": Lie(sends(_COMPRESSED), "layer driver: ", "Content-Encoding 'gzip'"),
    "is a part that nobody asked for": Lie(sends(ranged(ROOT, 1000)), "206 Partial Content", "HTTP 206"),
    "redirects for ever": Lie(redirects, "redirection", "HTTP 302"),
}
"""What "" stands for: busybox has its own words for it, or none."""

FALSE_PARTS = {
    "another part": lambda connection, request: connection.sendall(ranged(FALSE, request.start)),
    # What was hashed as it came must not be replaced behind the hash's back.
    "the whole with another beginning": sends(reply(FALSE[:BEGUN] + ROOT[BEGUN:])),
    "the whole with another beginning, slowly": drips(head(len(ROOT)) + FALSE[:BEGUN]),
}
"""Answers to who asks for the rest of ROOT from BEGUN on."""
