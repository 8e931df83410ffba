"""GET a file of an image from its sources: exact size, hashed while it arrives, continued where it was cut.

A source that is slow is left like one that fails, and what it gave is kept. Where the parts of several do not fit
together, nobody can say whose is false: the whole is fetched from one alone.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import BinaryIO

from provisioner.node.image.answer import Connect, PartialBody, SourceFull
from provisioner.node.image.manifest import ImageError, ImageFile

CHUNK_BYTES = 1 << 18
CHECK_BYTES = 8 << 20
"""After so many bytes it is looked whether memory has become short."""
TRIES = 6
"""So many attempts may fail, and more while each still brings PROGRESS_BYTES: slow links end no fetch."""
PROGRESS_BYTES = 1 << 20
MOST_WAITED_SECONDS = 3600.0
"""So long a fetch waits for room at sources that are full."""


class Unfinished(ImageError):
    """The sources did not give the whole; what they gave can be continued."""


def fetch_small(
    sources: Sequence[str],
    path: str,
    limit_bytes: int,
    check: Callable[[bytes], object] = lambda content: None,
    *,
    connect: Connect | None = None,
) -> bytes:
    """A file of at most `limit_bytes` that `check` (which may raise ImageError) lets pass, from the first source that
    gives it. `connect`: as of Answer. Raises: ImageError naming each fault."""
    faults = []
    for source in sources:
        try:
            content = b""
            with PartialBody(f"{source}/{path}", 0, size_bytes=limit_bytes, least_rate=None, connect=connect) as answer:
                while len(content) <= limit_bytes and (piece := answer.read(limit_bytes + 1 - len(content))):
                    content += piece
            if len(content) > limit_bytes:
                raise OSError(f"more than {limit_bytes} bytes")
            check(content)
        except (OSError, http.client.HTTPException, ValueError, ImageError) as error:
            faults.append(f"{source}/{path}: {error}")
            continue
        return content
    raise ImageError("; ".join(faults) or "the running boot names no image source (provisioner.url)")


def fetch_file(
    sources: Sequence[str],
    wanted: ImageFile,
    target: BinaryIO,
    *,
    least_rate: int,
    check: Callable[[], None],
    sleep: Callable[[float], object] = time.sleep,
    spread: Callable[[float, float], float] = random.uniform,
    clock: Callable[[], float] = time.monotonic,
    connect: Connect | None = None,
) -> tuple[list[str], int]:
    """Append exactly the wanted file to `target`, which may hold its beginning already (from `target.tell()` on).

    `least_rate`: in bytes/s. `connect`: as of Answer. `check` is called every CHECK_BYTES and may raise.

    Sources are asked in turn, each from where the last one ended; one that alone gave what is not the wanted file is
    not asked again. Where one is full (HTTP 503) and no other gives it, they are asked again after what it says, half
    of that more or less by `spread`.
    Returns: what was wrong with sources meanwhile, and how many bytes they gave.
    Raises: Unfinished; ImageError when no source gives the wanted file: nothing of it is in `target` then.
    """
    part = PartialFile(wanted, target)
    faults: list[str] = []
    if part.is_whole():
        return faults, 0
    turns = deque(sources)
    failures, spare = 0, wanted.size_bytes // PROGRESS_BYTES
    full: SourceFull | None = None
    in_vain, waited = 0, 0.0
    began: float | None = None  # when a source was full first: what others stall meanwhile is waiting, too
    while turns and failures < TRIES:
        if full is not None and in_vain >= len(turns):
            began = clock() if began is None else began
            waited = max(waited, clock() - began)
            if waited >= MOST_WAITED_SECONDS:
                raise Unfinished(
                    f"{turns[0]} has been full (HTTP 503) for {waited / 60:.0f} minutes; it is asked again"
                )
            pause = spread(0.5 * full.retry_after, 1.5 * full.retry_after)
            print(f"image sources are full, asking again in {pause:.0f} s", file=sys.stderr, flush=True)
            sleep(pause)
            waited += pause
            failures, in_vain, full = 0, 0, None
        elif failures >= len(sources):
            sleep(min(2.0**failures, 15.0))
        url, before = f"{turns[0]}/{wanted.path}", part.have
        try:
            if part.have < wanted.size_bytes:
                part.continue_from(url, least_rate, check, connect)
        except SourceFull as error:
            full, in_vain = error, in_vain + 1
            turns.rotate(-1)
        except (OSError, http.client.HTTPException, ValueError) as error:
            in_vain = in_vain + 1 if part.have == before else 0
            faults.append(f"{url}: {error}")
            turns.rotate(-1)
            if spare and part.have - before >= PROGRESS_BYTES:
                spare -= 1
            else:
                failures += 1
        else:
            if part.is_whole():
                return faults, part.given_bytes
            if part.answers == 1:
                faults.append(f"{url}: {part.describe()}")
                turns.popleft()
            part.discard()
            failures += 1
    fault = faults[-1] if faults else "there is no source"
    if turns:
        raise Unfinished(f"{fault}; check the source, the way to it, and its image store")
    raise ImageError(f"{fault}; publish the image again")


class PartialFile:
    """What of the wanted file is in `target`, from where that stood. `answers`: how many gave it, of which some may
    lie. `given_bytes`: by all sources, also what was thrown away. What is whole may have more behind it; behind
    anything else there is nothing."""

    def __init__(self, wanted: ImageFile, target: BinaryIO) -> None:
        self._wanted, self._target = wanted, target
        self._start = target.tell()
        self._digest = hashlib.sha256()
        self.have = self.given_bytes = 0
        self._too_long = False
        while piece := target.read(min(CHUNK_BYTES, wanted.size_bytes - self.have)):
            self._digest.update(piece)
            self.have += len(piece)
        self.answers = 1 if self.have else 0
        if self.have == wanted.size_bytes and not self.is_whole():
            self.discard()

    def discard(self) -> None:
        self._target.seek(self._start)
        self._target.truncate()
        self._digest, self.have, self.answers, self._too_long = hashlib.sha256(), 0, 0, False

    def is_whole(self) -> bool:
        right = self._digest.hexdigest() == self._wanted.sha256
        return self.have == self._wanted.size_bytes and right and not self._too_long

    def describe(self) -> str:
        """Why it is not the wanted file."""
        wanted = self._wanted
        if self._too_long:
            return f"{wanted.name} has more than {wanted.size_bytes} bytes"
        if self.have < wanted.size_bytes:
            return f"{wanted.name} is truncated: {self.have} of {wanted.size_bytes} bytes"
        return f"{wanted.name} is altered: sha256 {self._digest.hexdigest()}, expected {wanted.sha256}"

    def continue_from(
        self, url: str, least_rate: int, check: Callable[[], None], connect: Connect | None = None
    ) -> None:
        """Add what is missing. Raises: what Answer and `check` raise; OSError if it was cut."""
        size, checked = self._wanted.size_bytes, self.have
        with PartialBody(url, self.have, size_bytes=size, least_rate=least_rate, connect=connect) as answer:
            self.answers += 1
            while self.have < size:
                piece = answer.read(min(CHUNK_BYTES, size - self.have))
                if not piece:
                    raise OSError(f"truncated: {self.have} of {size} bytes")
                self._add(piece)
                self.given_bytes += len(piece)
                if self.have - checked >= CHECK_BYTES:
                    checked = self.have
                    check()
            self._too_long = bool(answer.read(1))

    def copy_from(self, device: BinaryIO, check: Callable[[], None]) -> None:
        """The whole from a device that should begin with it. Raises: what reading and `check` raise."""
        self.discard()
        checked = 0
        while piece := device.read(min(CHUNK_BYTES, self._wanted.size_bytes - self.have)):
            self._add(piece)
            if self.have - checked >= CHECK_BYTES:
                # What was copied need not stay in memory as the device's, too.
                os.posix_fadvise(device.fileno(), checked, self.have - checked, os.POSIX_FADV_DONTNEED)
                checked = self.have
                check()

    def _add(self, piece: bytes) -> None:
        self._target.write(piece)
        self._digest.update(piece)
        self.have += len(piece)
