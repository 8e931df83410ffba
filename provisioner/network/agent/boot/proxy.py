"""HTTP for the host: one request a connection, answered from the cache or from the boot host, bounded in every way.

A file of an image that is fetched for the first time is handed on while it comes, but for its last piece: that follows
once the whole has the digest that the manifest says, so that a false file never arrives whole.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

from provisioner.network.agent.boot.image_cache import CachedPart, Filling, ImageCache, Unverified, Verified
from provisioner.network.agent.boot.plane import HTTP_PORT, BootingHost, BootServices
from provisioner.network.agent.boot.request import (
    FIRST_STAGE_BYTES,
    LONGEST_HEAD,
    SMALL_BYTES,
    Answerable,
    BootRequestRefused,
    Head,
    PartFile,
    PassOn,
    RequestedFile,
    Stretch,
    judge,
    read_head,
)
from provisioner.node.http.lingering_close import linger

HEAD_SECONDS: Final = 15.0
"""For a request to arrive whole, or to be refused before that."""
SILENT_SECONDS: Final = 30.0
"""After so long without a byte, on either side, it is given up."""
ANSWER_SECONDS: Final = 3600.0
"""For a whole answer. At 1 MiB/s that is 3.6 GiB."""
SAY_SECONDS: Final = 10.0
"""Between two words of what a host was not given."""
PIECE_BYTES: Final = 256 * 1024
MOST_PART_BYTES: Final = 16 << 30
"""Of a part of an image."""
_LONGEST_SIZE: Final = 16
RETRY_SECONDS: Final = 10
"""What a host is told where the boot host is full, as that tells the DPU; firmware and stage-1 ask again."""
_REASONS: Final = http.client.responses
_PASSED_ON: Final = frozenset((200, 204, 400, 404, 413, 415, 429, 503))


class ProxyFailed(Exception):
    """The boot host did not answer as it must; the message says what it did instead."""


class Proxy:
    """Answers connections of the host. Many threads may use it. `say`: what a person should know."""

    def __init__(
        self,
        services: BootServices,
        cache: ImageCache,
        say: Callable[[str], None],
        *,
        http_port: int = HTTP_PORT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._services, self._cache, self._say, self._clock = services, cache, say, clock
        self._http_port = http_port
        self._lock = threading.Lock()
        self._silent_until = -math.inf

    def answer(self, connection: socket.socket, host: BootingHost) -> None:
        """One request. Raises nothing for what comes; closes nothing."""
        try:
            asked = self._read(connection)
            if asked is None:
                return
            head, body = asked
            self._carry_out(connection, head, judge(head, host, body))
        except (ProxyFailed, Unverified) as error:
            self._failed(host, error)
        except (OSError, http.client.HTTPException):
            return  # the host has gone, or the boot host has: the host asks again

    def first_stage(self, name: str) -> bytes | None:
        """A file that firmware loads, for TFTP; None if the boot host did not give it."""
        status, _, _, content = self._small(PassOn("GET", f"/tftp/{name}", FIRST_STAGE_BYTES))
        return content if status == 200 else None

    def _failed(self, host: BootingHost, error: Exception) -> None:
        """Said now and then: a host may ask for what there is not as often as it likes."""
        with self._lock:
            now = self._clock()
            if now < self._silent_until:
                return
            self._silent_until = now + SAY_SECONDS
        self._say(f"Server at {host.address} was not given what it asked for: {error}")

    def _read(self, connection: socket.socket) -> tuple[Head, bytes] | None:
        """None: it was no request, which was told."""
        deadline = self._clock() + HEAD_SECONDS
        got = b""
        while b"\r\n\r\n" not in got:
            if len(got) > LONGEST_HEAD:
                self._refuse_unread(
                    connection, BootRequestRefused(431, "the head of the request is too long"), deadline
                )
                return None
            more = self._receive(connection, deadline)
            if not more:
                return None
            got += more
        end = got.index(b"\r\n\r\n") + 4
        head, body = read_head(got[:end]), got[end:]
        size = head.body_bytes if head is not None else None
        if head is None or size is None:
            self._refuse_unread(connection, BootRequestRefused(400, "this is no request that is read here"), deadline)
            return None
        while len(body) < size:
            more = self._receive(connection, deadline)
            if not more:
                return None
            body += more
        return head, body[:size]

    def _refuse_unread(self, connection: socket.socket, refused: BootRequestRefused, deadline: float) -> None:
        _refuse(connection, refused)
        linger(connection, deadline - self._clock())

    def _receive(self, connection: socket.socket, deadline: float) -> bytes:
        left = deadline - self._clock()
        if left <= 0:
            return b""
        connection.settimeout(left)
        return connection.recv(LONGEST_HEAD)

    def _carry_out(self, connection: socket.socket, head: Head, what: Answerable) -> None:
        connection.settimeout(SILENT_SECONDS)
        with_body = head.method != "HEAD"
        if isinstance(what, BootRequestRefused):
            _refuse(connection, what)
        elif isinstance(what, PassOn):
            status, kind, size, content = self._small(what)
            _head(connection, status, size, kind)
            if with_body:
                connection.sendall(content)
        else:
            try:
                if isinstance(what, RequestedFile):
                    self._image(connection, what, with_body=with_body)
                else:
                    self._give(connection, what, self._part(what), with_body=with_body)
            except _Full as error:
                _refuse(connection, BootRequestRefused(503, "the boot host is full"))
                raise ProxyFailed(str(error)) from error
            except _NotBegun as error:
                _refuse(connection, BootRequestRefused(502, "the boot host did not give it"))
                raise ProxyFailed(str(error)) from error

    def _small(self, what: PassOn) -> tuple[int, str, int, bytes]:
        """Status, type, size and body, which HEAD has none of. A boot host that fails is told to the host as 502."""
        try:
            with self._asked(what.method, what.target, {}, what.body, what.content_type) as answer:
                if answer.status not in _PASSED_ON:
                    raise ProxyFailed(f"{what.target}: HTTP {answer.status}")
                content = b"" if what.method == "HEAD" else answer.read(what.most_bytes + 1)
                size = _said_size(answer) if what.method == "HEAD" else len(content)
                if size > what.most_bytes:
                    raise ProxyFailed(f"{what.target}: more than {what.most_bytes} bytes")
                return answer.status, answer.headers.get_content_type(), size, content
        except (ProxyFailed, OSError, http.client.HTTPException):
            content = b"the boot host did not answer\n"
            return 502, "text/plain", len(content), content

    def _image(self, connection: socket.socket, what: RequestedFile, *, with_body: bool) -> None:
        if what.name in ("manifest", "manifest.sig"):
            content = self._manifest(what.digest) if what.name == "manifest" else self._whole(what.target)
            _head(connection, 200, len(content), "application/octet-stream")
            if with_body:
                connection.sendall(content)
            return
        self._manifest(what.digest)
        try:
            part = self._cache.part(what.digest, what.name)
        except KeyError:
            raise _NotBegun(f"image {what.digest}: too many others are asked for at once") from None
        if part is None:
            _refuse(connection, BootRequestRefused(404, "the image has no file of that name"))
            return
        self._give(connection, what, part, with_body=with_body)

    def _part(self, what: PartFile) -> CachedPart:
        """With its size, which for one that is not kept the boot host says: a false one never comes whole."""
        kept = self._cache.kept(what.sha256)
        if kept is not None:
            return kept
        with self._asked("HEAD", what.target, {}) as answer:
            size = _said_size(answer) if answer.status == 200 else 0
            if not 0 < size <= MOST_PART_BYTES:
                raise _NotBegun(f"{what.target}: HTTP {answer.status} with {size} bytes")
            return CachedPart(what.sha256, size)

    def _give(
        self, connection: socket.socket, what: RequestedFile | PartFile, part: CachedPart, *, with_body: bool
    ) -> None:
        stretch = what.stretch
        last = part.size_bytes - 1 if stretch.last is None else min(stretch.last, part.size_bytes - 1)
        first = stretch.first or 0
        if first > last:
            _refuse(connection, BootRequestRefused(416, "the file is shorter"))
            return
        with self._cache.opened(part) as kept:
            if kept is not None:
                kept.seek(first)
                _begin(connection, stretch, part, first, last)
                if with_body:
                    self._copy(connection, _pieces(kept, last - first + 1))
            elif not with_body:
                _begin(connection, stretch, part, first, last)
            else:
                self._fetch(connection, what, part, first, last)

    def _fetch(
        self, connection: socket.socket, what: RequestedFile | PartFile, part: CachedPart, first: int, last: int
    ) -> None:
        """Of what is not kept. A range goes by; a whole file is kept if there is room."""
        is_whole = (first, last) == (0, part.size_bytes - 1)
        ranges = {} if is_whole else {"Range": f"bytes={first}-{last}"}
        filling = self._cache.filling(part) if is_whole else None
        verified = False
        try:
            with self._asked("GET", what.target, ranges) as answer:
                if answer.status != (200 if is_whole else 206) or answer.length != last - first + 1:
                    raise _NotBegun(f"{what.target}: HTTP {answer.status} with {answer.length} bytes")
                pieces = _pieces(answer, last - first + 1)
                _begin(connection, what.stretch, part, first, last)
                self._copy(connection, _verified(pieces, part, filling) if is_whole else pieces)
                verified = is_whole
        finally:
            if filling is not None:
                filling.close(is_whole=verified)

    def _copy(self, connection: socket.socket, pieces: Iterator[bytes]) -> None:
        deadline = self._clock() + ANSWER_SECONDS
        for piece in pieces:
            if self._clock() > deadline:
                raise ProxyFailed(f"an answer took longer than {ANSWER_SECONDS:.0f} s")
            connection.sendall(piece)

    def _manifest(self, digest: str) -> bytes:
        known = self._cache.manifest(digest)
        if known is not None:
            return known
        content = self._whole(f"/images/sha256-{digest}/manifest")
        try:
            self._cache.take_manifest(digest, content)
        except Unverified as error:
            raise _NotBegun(str(error)) from error
        return content

    def _whole(self, target: str) -> bytes:
        with self._asked("GET", target, {}) as answer:
            content = answer.read(SMALL_BYTES + 1)
            if answer.status != 200 or len(content) > SMALL_BYTES:
                raise _NotBegun(f"{target}: HTTP {answer.status} with {len(content)} bytes")
            return content

    @contextlib.contextmanager
    def _asked(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes | None = None,
        content_type: str | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """Raises: OSError, http.client.HTTPException; _Full where the boot host sends to as many as it can."""
        upstream = http.client.HTTPConnection(str(self._services.boot_host), self._http_port, timeout=SILENT_SECONDS)
        try:
            said = {"Accept-Encoding": "identity", "Connection": "close", "User-Agent": "provisioner-dpu", **headers}
            if content_type is not None:
                said["Content-Type"] = content_type
            upstream.request(method, target, body, said)
            with upstream.getresponse() as answer:
                if answer.status == 503 and target.startswith("/images/"):
                    raise _Full(f"{target}: HTTP 503")
                yield answer
        finally:
            upstream.close()


class _NotBegun(ProxyFailed):
    """Nothing of an answer has been sent yet."""


class _Full(_NotBegun):
    """The boot host wants to be asked again in a little while, and so does the DPU."""


def _verified(pieces: Iterator[bytes], part: CachedPart, filling: Filling | None) -> Iterator[bytes]:
    """The same, the last once all are right. Raises: Unverified."""
    whole, held = Verified(part), b""
    for piece in pieces:
        whole.add(piece)
        if filling is not None:
            filling.write(piece)
        if held:
            yield held
        held = piece
    whole.end()
    yield held


def _pieces(stream: BinaryIO | http.client.HTTPResponse, size: int) -> Iterator[bytes]:
    """`size` bytes. Raises: ProxyFailed if it ends before."""
    while size > 0:
        piece = stream.read(min(PIECE_BYTES, size))
        if not piece:
            raise ProxyFailed(f"a file ended {size} bytes too early")
        size -= len(piece)
        yield piece


def _said_size(answer: http.client.HTTPResponse) -> int:
    """By which firmware that boots by HTTP knows how much to fetch. Raises: ProxyFailed."""
    said = answer.getheader("Content-Length") or ""
    if not (said.isascii() and said.isdecimal() and len(said) < _LONGEST_SIZE):
        raise ProxyFailed(f"an answer to HEAD has the size {said[:_LONGEST_SIZE]!r}, not a number of bytes")
    return int(said)


def _begin(connection: socket.socket, stretch: Stretch, part: CachedPart, first: int, last: int) -> None:
    status, said = 200, ""
    if stretch.first is not None:
        status, said = 206, f"Content-Range: bytes {first}-{last}/{part.size_bytes}\r\n"
    _head(connection, status, last - first + 1, "application/octet-stream", f"Accept-Ranges: bytes\r\n{said}")


def _refuse(connection: socket.socket, refused: BootRequestRefused) -> None:
    content = f"{refused.why}\n".encode()
    again = f"Retry-After: {RETRY_SECONDS}\r\n" if refused.status == 503 else ""
    _head(connection, refused.status, len(content), "text/plain", again)
    connection.sendall(content)


def _head(connection: socket.socket, status: int, size: int, kind: str, more: str = "") -> None:
    said = f"HTTP/1.1 {status} {_REASONS.get(status, '')}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}"
    length = "" if status == 204 else f"Content-Length: {size}\r\n"
    connection.sendall(f"{said}{length}\r\n".encode())
