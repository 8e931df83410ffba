"""How many live streams there are: each has a thread, and pages must find one."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

OF_ONE: Final = 12
"""Pages that one person may keep open, seen, at a time."""


class TooMany(Exception):
    """No further stream: its words say whose limit it is."""


class Viewers:
    """At most `most` streams, and `of_one` for each who has them. Usable from several threads."""

    def __init__(self, most: int, of_one: int) -> None:
        self._most, self._of_one = most, of_one
        self._lock = threading.Lock()
        self._streams: Counter[str] = Counter()

    @property
    def streams(self) -> int:
        with self._lock:
            return self._streams.total()

    def enter(self, who: str) -> None:
        """Count one. Raises: TooMany."""
        with self._lock:
            if self._streams.total() >= self._most:
                raise TooMany(f"{self._most} pages are followed already")
            if self._streams[who] >= self._of_one:
                raise TooMany(f"{self._of_one} pages are followed by you already: close one")
            self._streams[who] += 1

    def leave(self, who: str) -> None:
        with self._lock:
            self._streams[who] -= 1
            if not self._streams[who]:
                del self._streams[who]
