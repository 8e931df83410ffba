"""Whole files on a cache host's disk, by the path that they are asked for by: bounded in bytes, the longest unused
go first."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import structlog

from provisioner.boot.cache.paths import ImageFilePath, read_path

log = structlog.get_logger(__name__)

_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class KeptFile:
    """One of them. used: seconds since 1970."""

    asked: ImageFilePath
    size_bytes: int
    used: float


class NoPlace(OSError):
    """It is larger than all that may be kept."""


class KeptFiles:
    """`folder` holds `images/…`, with nothing in it but what was found right, and files under way that begin with a
    dot. Any thread may call."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._lock = threading.RLock()
        self.most_bytes = most_bytes
        self.evicted = 0
        """Files that made room for others, since the start."""

    def prepare(self) -> None:
        """Make the folder; take away what an earlier run left half done."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o755)
        for half in self._folder.glob(".new-*"):
            half.unlink()

    def path(self, asked: ImageFilePath) -> Path:
        return self._folder / asked.path.lstrip("/")

    def has(self, asked: ImageFilePath) -> bool:
        return self.path(asked).is_file()

    def read(self, asked: ImageFilePath, most_bytes: int) -> bytes | None:
        """The beginning of it; None if it is not there."""
        try:
            with self.path(asked).open("rb") as file:
                return file.read(most_bytes)
        except OSError:
            return None

    def touch(self, asked: ImageFilePath, now: float) -> None:
        """It was asked for. The time of access says so: on a disk that does not keep it by itself, too."""
        with suppress(OSError):
            os.utime(self.path(asked), (now, self.path(asked).stat().st_mtime))

    def all(self) -> list[KeptFile]:
        """The longest unused first."""
        found = []
        for path in self._folder.glob("images/*/*"):
            asked = read_path(f"/{path.relative_to(self._folder)}")
            with suppress(OSError):
                if asked is not None:
                    stat = path.stat()
                    found.append(KeptFile(asked, stat.st_size, stat.st_atime))
        return sorted(found, key=lambda file: file.used)

    @contextmanager
    def new(self) -> Iterator[BinaryIO]:
        """A file of no name, which is gone afterwards unless `keep` named it."""
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as file:
            try:
                yield file  # type: ignore[misc]
            finally:
                with suppress(FileNotFoundError):
                    Path(file.name).unlink()

    def keep(self, asked: ImageFilePath, file: BinaryIO, now: float) -> None:
        """Name what `new` gave, which was found right, and for which room was made. Raises: OSError."""
        file.flush()
        os.fsync(file.fileno())
        target = self.path(asked)
        with self._lock:
            for folder in (target.parent.parent, target.parent):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o755)  # read by nginx's workers, whatever the umask
            os.fchmod(file.fileno(), 0o644)
            Path(file.name).rename(target)
        self.touch(asked, now)

    def make_room(self, size_bytes: int) -> None:
        """Have so much left of what may be kept. What is being sent stays readable for who reads it.

        Raises: NoPlace.
        """
        if size_bytes > self.most_bytes:
            raise NoPlace(f"{size_bytes} bytes are more than all that may be kept, {self.most_bytes}")
        with self._lock:
            files = self.all()
            used = sum(file.size_bytes for file in files)
            for file in files:
                if used + size_bytes <= self.most_bytes:
                    return
                self.discard(file.asked)
                self.evicted += 1
                used -= file.size_bytes
                log.info("file made room for others", path=file.asked.path)

    def discard(self, asked: ImageFilePath) -> None:
        """Absent is fine."""
        path = self.path(asked)
        with self._lock:
            path.unlink(missing_ok=True)
            if asked.folder != "parts":
                with suppress(OSError):
                    path.parent.rmdir()

    def hash(self, asked: ImageFilePath) -> str | None:
        """SHA-256 of what the disk has of it; None if it is not there."""
        try:
            digest = hashlib.sha256()
            with self.path(asked).open("rb") as file:
                while piece := file.read(_CHUNK):
                    digest.update(piece)
            return digest.hexdigest()
        except FileNotFoundError:
            return None
