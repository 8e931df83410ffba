"""Images' files on the DPU, for its host: verified before one is kept, and never more than a bound.

A part of an image is known by its SHA-256, which is its name, or which the manifest of an image of format 1 has; a
manifest by its own, which is the image's name. What is kept was compared with that when it was written, in a folder
whose files are deleted at the start: nothing that was there before is believed. The host's stage-1 checks signature and
digests in any case.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from provisioner.node.image.manifest import MAX_BYTES, ImageError, read_manifest

MOST_MANIFESTS: Final = 16
_MACHINES: Final = ("x86_64", "aarch64")
_SUFFIX: Final = ".part"
_OURS: Final = re.compile(r"[0-9a-f]{64}(\.part)?\Z")


class Unverified(Exception):
    """What was fetched is not what was asked for; the message says object, observed and expected."""


@dataclass(frozen=True)
class CachedPart:
    """A file of an image, as its manifest has it."""

    sha256: str
    size_bytes: int


class ImageCache:
    """Holds at most `most_bytes` of files in `folder`, which is its own, and half of what was free there at the start;
    those that were asked for last, and those that are being read. Many threads may use it."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._reserved: dict[str, int] = {}
        self._read: Counter[str] = Counter()
        self._manifests: OrderedDict[str, tuple[bytes, dict[str, CachedPart]]] = OrderedDict()

    def empty(self) -> None:
        """At the start. Raises: OSError if the folder cannot be made, or is not to be written to."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in self._folder.iterdir():
            if _OURS.match(each.name):
                each.unlink()
        # The folder may lie in memory, in which others write, too.
        self._most_bytes = min(self._most_bytes, shutil.disk_usage(self._folder).free // 2)

    def manifest(self, digest: str) -> bytes | None:
        """If it is known."""
        with self._lock:
            known = self._manifests.get(digest)
            return known[0] if known is not None else None

    def take_manifest(self, digest: str, content: bytes) -> None:
        """Raises: Unverified if it is not the manifest of that digest."""
        if len(content) > MAX_BYTES:
            raise Unverified(f"the manifest of image {digest} is longer than {MAX_BYTES} bytes")
        why: ImageError | None = None
        for machine in _MACHINES:
            try:
                contents = read_manifest(content, f"sha256:{digest}", machine)
            except ImageError as error:
                why = error
                continue
            parts = {each.file_name: CachedPart(each.sha256, each.size_bytes) for each in contents.files}
            with self._lock:
                self._manifests[digest] = content, parts
                while len(self._manifests) > MOST_MANIFESTS:
                    self._manifests.popitem(last=False)
            return
        raise Unverified(str(why))

    def part(self, digest: str, name: str) -> CachedPart | None:
        """None of what the manifest does not have. Raises: KeyError while the manifest is not known."""
        with self._lock:
            return self._manifests[digest][1].get(name)

    def kept(self, sha256: str) -> CachedPart | None:
        """The part of that digest, if it is kept now."""
        with self._lock:
            size = self._sizes.get(sha256)
            return CachedPart(sha256, size) if size is not None else None

    @contextlib.contextmanager
    def opened(self, part: CachedPart) -> Iterator[BinaryIO | None]:
        """None where it is not kept."""
        found: BinaryIO | None = None
        with self._lock:
            if part.sha256 in self._sizes:
                self._sizes.move_to_end(part.sha256)
                try:
                    found = (self._folder / part.sha256).open("rb")
                    self._read[part.sha256] += 1
                except OSError:
                    del self._sizes[part.sha256]
        try:
            yield found
        finally:
            if found is not None:
                found.close()
                with self._lock:
                    self._read[part.sha256] -= 1
                    self._read += Counter()  # without those that nobody reads

    def filling(self, part: CachedPart) -> Filling | None:
        """To be written to; None where it does not fit, or is being written already."""
        with self._lock:
            if part.sha256 in self._sizes or part.sha256 in self._reserved or part.size_bytes > self._most_bytes:
                return None
            # One that is open goes on taking its room when it is deleted.
            kept = sum(size for sha256, size in self._sizes.items() if sha256 in self._read)
            room = self._most_bytes - sum(self._reserved.values()) - part.size_bytes
            if room < kept:
                return None
            for oldest in [each for each in self._sizes if each not in self._read]:
                if sum(self._sizes.values()) <= room:
                    break
                del self._sizes[oldest]
                with contextlib.suppress(OSError):
                    (self._folder / oldest).unlink()
            self._reserved[part.sha256] = part.size_bytes
        try:
            return Filling(self, part, self._folder / f"{part.sha256}{_SUFFIX}")
        except OSError:
            self.ended(part, None)
            return None

    def ended(self, part: CachedPart, written: Path | None) -> None:
        """By a Filling: `written` has the whole, verified file; None: nothing is kept."""
        with self._lock:
            self._reserved.pop(part.sha256, None)
            if written is not None:
                written.rename(self._folder / part.sha256)
                self._sizes[part.sha256] = part.size_bytes


class Filling:
    """A file on its way into the cache. To be closed; it is kept if `is_whole` was true then."""

    def __init__(self, cache: ImageCache, part: CachedPart, path: Path) -> None:
        self._cache, self._part, self._path = cache, part, path
        self._stream = path.open("xb")  # another agent, which is about to end, may be writing it
        self._has_failed = False

    def write(self, content: bytes) -> None:
        """What cannot be written, as the disk is full, is not kept; nobody need know."""
        if not self._has_failed:
            try:
                self._stream.write(content)
            except OSError:
                self._has_failed = True

    def close(self, *, is_whole: bool) -> None:
        """`is_whole`: all was written, and has the part's digest."""
        with contextlib.suppress(OSError):
            self._stream.close()
        keep = is_whole and not self._has_failed
        try:
            keep = keep and self._path.stat().st_size == self._part.size_bytes
            self._cache.ended(self._part, self._path if keep else None)
        except OSError:
            keep = False
            self._cache.ended(self._part, None)
        if not keep:
            with contextlib.suppress(OSError):
                self._path.unlink()


class Verified:
    """Bytes that come one after another, compared with a part at their end."""

    def __init__(self, part: CachedPart) -> None:
        self._part, self._sum, self._size = part, hashlib.sha256(), 0

    def add(self, content: bytes) -> None:
        """Raises: Unverified at the first byte too many."""
        self._size += len(content)
        if self._size > self._part.size_bytes:
            raise Unverified(f"file {self._part.sha256} has more than its {self._part.size_bytes} bytes")
        self._sum.update(content)

    def end(self) -> None:
        """Raises: Unverified."""
        observed = self._sum.hexdigest()
        if self._size != self._part.size_bytes or observed != self._part.sha256:
            raise Unverified(
                f"file {self._part.sha256} of {self._part.size_bytes} bytes came as {self._size} bytes with digest "
                f"{observed}"
            )
