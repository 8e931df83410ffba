"""GET a file of an image from one of its sources: exact size, hashed while it arrives, continued where it was cut."""

from __future__ import annotations

import hashlib
import http.client
import socket
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

from provisioner.node.http_post import split_url
from provisioner.node.image.manifest import ImageError, ImageFile

CHUNK_BYTES = 1 << 18
CHECK_BYTES = 8 << 20
"""After so many bytes it is looked whether memory has become short."""
TRIES = 6
_TIMEOUT_SECONDS = 20.0


def fetch_small(sources: Sequence[str], path: str, limit_bytes: int) -> bytes:
    """A file of at most `limit_bytes`, from the first source that has it. Raises: ImageError naming each fault."""
    faults = []
    for source in sources:
        try:
            with _Body(f"{source}/{path}", 0) as body:
                content = body.read(limit_bytes + 1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            faults.append(f"{source}/{path}: {error}")
            continue
        if len(content) <= limit_bytes:
            return content
        faults.append(f"{source}/{path}: more than {limit_bytes} bytes")
    raise ImageError("; ".join(faults) or "the running boot names no image source (provisioner.url)")


def fetch_file(
    sources: Sequence[str],
    path: str,
    wanted: ImageFile,
    target: BinaryIO,
    *,
    check: Callable[[], None],
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Append exactly the wanted file to `target`, which may hold its beginning already (from `target.tell()` on).

    `check` is called every CHECK_BYTES and may raise. Sources are asked in turn, each from where the last one ended.
    Raises: ImageError when it cannot be had whole, or its digest is another one; what was written is then worthless.
    """
    start = target.tell()
    digest = hashlib.sha256()
    while piece := target.read(CHUNK_BYTES):
        digest.update(piece)
    have = target.tell() - start
    if have > wanted.size_bytes:
        target.seek(start)
        target.truncate()
        digest, have = hashlib.sha256(), 0
    fault = "there is no source"
    for attempt in range(TRIES):
        if have == wanted.size_bytes or not sources:
            break
        if attempt >= len(sources):
            sleep(min(2.0**attempt, 15.0))
        source = sources[attempt % len(sources)]
        try:
            with _Body(f"{source}/{path}", have) as body:
                checked = have
                while have < wanted.size_bytes:
                    piece = body.read(min(CHUNK_BYTES, wanted.size_bytes - have))
                    if not piece:
                        raise OSError(f"truncated: {have} of {wanted.size_bytes} bytes")
                    target.write(piece)
                    digest.update(piece)
                    have += len(piece)
                    if have - checked >= CHECK_BYTES:
                        checked = have
                        check()
                if body.read(1):
                    raise ImageError(
                        f"{source}/{path} has more than {wanted.size_bytes} bytes; publish the image again"
                    )
        except (OSError, http.client.HTTPException, ValueError) as error:
            fault = f"{source}/{path}: {error}"
    if have != wanted.size_bytes:
        raise ImageError(f"{fault}; check the boot host and its image store")
    if digest.hexdigest() != wanted.sha256:
        raise ImageError(
            f"{path} is altered: sha256 {digest.hexdigest()}, expected {wanted.sha256}; publish the image again"
        )


class _Body:
    """The body of a plain HTTP answer from a byte on."""

    def __init__(self, url: str, start: int) -> None:
        tls, host, port, path = split_url(url)
        if tls:
            raise ValueError("image sources are plain http")
        self._connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_SECONDS)
        try:
            self._connection.connect()
            # A small window keeps a fetch beside running jobs from filling the way to this machine in bursts.
            self._connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            headers = {"User-Agent": "provisioner-node", **({"Range": f"bytes={start}-"} if start else {})}
            self._connection.request("GET", path, headers=headers)
            self._answer = self._connection.getresponse()
            if self._answer.status not in (200, 206):
                raise OSError(f"HTTP {self._answer.status}")
            if start and self._answer.status == 200:
                self._skip(start)
        except BaseException:
            self._connection.close()
            raise

    def _skip(self, count: int) -> None:
        # This source knows no ranges.
        while count > 0:
            piece = self._answer.read(min(CHUNK_BYTES, count))
            if not piece:
                raise OSError("truncated before the part that is missing")
            count -= len(piece)

    def read(self, size: int) -> bytes:
        return self._answer.read(size)

    def __enter__(self) -> _Body:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
