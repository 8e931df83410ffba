"""What is costly to make is made once for all who look, and not more often than it is worth."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
KEPT: Final = 512
REST: Final = 10.0
"""What took a second is not made again for ten."""


class Shared(Generic[T]):
    """Results by key, each good for `seconds`, or ten times as long as it took to make. Usable from several threads."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry[T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives; of those who ask at the same time one makes it, and the others wait. Raises: what `make`
        raises, to each who asks."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            while len(self._entries) > KEPT:
                self._entries.popitem(last=False)
        with entry.lock:
            began = self._clock()
            if entry.made is None or began >= entry.until:
                made = make()
                ended = self._clock()
                entry.made, entry.until = (made,), ended + max(self._seconds, REST * (ended - began))
            return entry.made[0]


class _Entry(Generic[T]):
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: tuple[T] | None = None
        self.until = 0.0
