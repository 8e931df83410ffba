"""Follows a log file that somebody else writes, and that is renamed and begun anew now and then."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger(__name__)

TURN_SECONDS: Final = 1.0
TURN_BYTES: Final = 1 << 20
"""Read at a time; there is a short rest before the next, so that others come to their turn."""
_REST_SECONDS: Final = 0.01
LINE_BYTES: Final = 4096
QUIET_SECONDS: Final = 15.0
"""A file that was renamed is written on for a moment: nginx's workers have yet to hear of it, and hold lines back."""
MOST_FILES: Final = 4


class _File:
    """One file, with what has been read of it."""

    def __init__(self, path: Path, now: float) -> None:
        self.stream = path.open("rb")
        self.rest = b""
        self.skips = False
        self.last_read = now

    def is_at(self, path: Path) -> bool:
        """Raises: FileNotFoundError."""
        return os.path.samestat(path.stat(), os.fstat(self.stream.fileno()))


class LogTail:
    """Gives each whole line of `path` to `take`, from what is written after the start on.

    `take` returns whether it could read the line. Lines that it could not read, and bytes that no line was made of,
    are counted. A file that was renamed is read until it has been quiet for a while, beside its successor.
    """

    def __init__(
        self, path: Path, take: Callable[[bytes], bool], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._take, self._clock = path, take, clock
        self._files: list[_File] = []
        self.unreadable_lines = 0
        self.lost_bytes = 0
        with suppress(OSError):
            first = _File(path, clock())
            first.stream.seek(0, os.SEEK_END)
            self._files.append(first)

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop`, and once more then."""
        while True:
            last = stop.is_set()
            try:
                more = self.turn()
            except OSError as error:
                more = False
                log.warning("log was not read", path=str(self._path), error=str(error))
            if last:
                break
            stop.wait(_REST_SECONDS if more else TURN_SECONDS)
        self.close()

    def close(self) -> None:
        """Give the files back; another `turn` begins anew."""
        while self._files:
            self._close(self._files[0])

    def turn(self) -> bool:
        """Take what is there, up to TURN_BYTES of each file. Returns: whether there may be more. Raises: OSError."""
        with suppress(FileNotFoundError):  # it was renamed, and nobody has begun the next one yet
            if not self._files or not self._files[-1].is_at(self._path):
                self._files.append(_File(self._path, self._clock()))
        more = [self._read(file) for file in self._files]
        now = self._clock()
        for file in self._files[:-1]:
            if now - file.last_read >= QUIET_SECONDS or len(self._files) > MOST_FILES:
                self._close(file)
        return any(more)

    def _read(self, file: _File) -> bool:
        if os.fstat(file.stream.fileno()).st_size < file.stream.tell():  # it was cut
            file.rest = b""
            file.stream.seek(0)
        data = file.stream.read(TURN_BYTES)
        if data:
            file.last_read = self._clock()
            self._lines(file, data)
        return len(data) == TURN_BYTES

    def _close(self, file: _File) -> None:
        self.lost_bytes += len(file.rest)
        file.stream.close()
        self._files.remove(file)

    def _lines(self, file: _File, data: bytes) -> None:
        *lines, file.rest = (file.rest + data).split(b"\n")
        for line in lines:
            if file.skips:  # the end of a line that was too long
                file.skips = False
                self.lost_bytes += len(line)
            elif not self._take(line):
                self.unreadable_lines += 1
        if len(file.rest) > LINE_BYTES:
            self.lost_bytes += len(file.rest)
            self.unreadable_lines += not file.skips
            file.rest, file.skips = b"", True
