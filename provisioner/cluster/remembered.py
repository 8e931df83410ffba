"""What is needed often and may be of a moment ago, asked for now and then."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """The answer of `ask`, for `seconds`. Usable from any thread; what `ask` raises is not remembered."""

    def __init__(self, ask: Callable[[], T], seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask, self._seconds, self._monotonic = ask, seconds, monotonic
        self._lock = threading.Lock()
        self._known: tuple[float, T] | None = None

    def __call__(self) -> T:
        with self._lock:
            if self._known is not None and self._monotonic() - self._known[0] < self._seconds:
                return self._known[1]
            answer = self._ask()
            self._known = (self._monotonic(), answer)
            return answer
