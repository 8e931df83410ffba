"""A file while it is fetched: one thread writes it, any number read what is there, and nobody gets its end before it
was found right."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

HELD_BACK_BYTES: Final = 64 * 1024
"""Of the end: who has not got it has not got the file, however it is found."""


@dataclass(frozen=True)
class DownloadFailure:
    """Why there is no file. status: as HTTP says it. is_false: what a boot host gave is not the file of that name."""

    status: int
    why: str
    is_false: bool = False


class DownloadFailed(OSError):
    """`failure` came instead of more of the file."""

    def __init__(self, failure: DownloadFailure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class Growing:
    """`write` and `end` are called by one thread. `size_bytes` is known before the first byte is."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._file: BinaryIO | None = None
        self._descriptor: int | None = None
        self._have = 0
        self._size: int | None = None
        self._is_right = False
        self._failure: DownloadFailure | None = None

    def begin(self, file: BinaryIO, size_bytes: int) -> None:
        """It is written into `file` from now on."""
        with self._changed:
            self._file, self._size = file, size_bytes
            # Who came while it was fetched may open it after it got its name, or was taken away.
            self._descriptor = os.dup(file.fileno())
            weakref.finalize(self, os.close, self._descriptor)
            self._changed.notify_all()

    def write(self, piece: bytes) -> None:
        if self._file is None:
            raise AssertionError("it was not begun")
        self._file.write(piece)
        self._file.flush()
        with self._changed:
            self._have += len(piece)
            self._changed.notify_all()

    def end(self, failure: DownloadFailure | None = None) -> None:
        """It is whole and right; or `failure`, and whoever reads it is cut off."""
        with self._changed:
            self._is_right, self._failure = failure is None, failure
            self._changed.notify_all()

    @property
    def size_bytes(self) -> int:
        """As soon as it is known. Raises: DownloadFailed."""
        with self._changed:
            self._changed.wait_for(lambda: self._size is not None or self._failure is not None)
            if self._size is None:
                raise DownloadFailed(self._failure or DownloadFailure(502, "it was not begun"))
            return self._size

    def open(self) -> int:
        """A descriptor for who reads, whose position is the writer's: to be read by offset. Raises: DownloadFailed."""
        with self._changed:
            if self._descriptor is None or self._failure is not None:
                raise DownloadFailed(self._failure or DownloadFailure(502, "it was not begun"))
            return os.dup(self._descriptor)

    def wait_beyond(self, position: int) -> int:
        """How far it may be read, once that is more than `position`. Raises: DownloadFailed."""
        with self._changed:
            self._changed.wait_for(lambda: self._readable > position or self._failure is not None)
            if self._failure is not None:
                raise DownloadFailed(self._failure)
            return self._readable

    @property
    def _readable(self) -> int:
        return self._have if self._is_right else min(self._have, (self._size or 0) - HELD_BACK_BYTES)


class Whole:
    """A file that is kept, read as a growing one is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size_bytes = path.stat().st_size

    def open(self) -> int:
        return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)

    def wait_beyond(self, position: int) -> int:
        return self.size_bytes
