"""Long work on what backends answered, in turns: at most a third of the time, whoever sends whatever to work on.

All threads of a process share one interpreter. Those that read large answers go one at a time, a few milliseconds
each; after each turn nobody of them works for twice as long. Who has worked least comes first, so that a small answer
is not held up by ten large ones.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Final, Self

TURN_SECONDS: Final = 0.004
"""By the clock: a thread that the system interrupts keeps the interpreter meanwhile."""
REST_TIMES: Final = 2


class Turns:
    """Who works, and who waits for it. Usable from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._waiting: list[tuple[float, int, threading.Event]] = []
        self._numbers = itertools.count()

    def take(self, worked_seconds: float) -> None:
        """Wait until nobody else works. There are as many who wait as lanes with calls, and each turn is short."""
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            heapq.heappush(self._waiting, (worked_seconds, next(self._numbers), mine))
        mine.wait()

    def leave(self) -> None:
        with self._lock:
            if self._waiting:
                heapq.heappop(self._waiting)[-1].set()
            else:
                self._taken = False


_TURNS: Final = Turns()


class Turn:
    """One thread's part of the work, as a context; `step` is to be called often inside.

    `alive` is called in each turn, and raises if there is no use in going on. `clock`: monotonic.
    """

    def __init__(
        self,
        alive: Callable[[], object] = lambda: None,
        *,
        turns: Turns = _TURNS,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._alive, self._turns, self._clock, self._rest = alive, turns, clock, rest
        self._began = 0.0
        self._worked = self._unrested = 0.0

    def __enter__(self) -> Self:
        self._turns.take(self._worked)
        self._began = self._clock()
        return self

    def __exit__(self, *_: object) -> None:
        """Let others work, which may be while this thread waits for more to work on."""
        used = self._clock() - self._began
        self._worked += used
        self._unrested += used
        try:
            if self._unrested >= TURN_SECONDS:
                rest, self._unrested = self._unrested * REST_TIMES, 0.0
                self._rest(rest)
        finally:
            self._turns.leave()

    def step(self) -> None:
        """A little was done: it may be somebody else's turn. Raises: what `alive` does."""
        if self._unrested + self._clock() - self._began >= TURN_SECONDS:
            self._alive()
            self.__exit__()
            self.__enter__()
