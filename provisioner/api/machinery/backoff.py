"""How long to wait before trying again: exponential, with jitter, lest a thousand clients come back at once."""

from __future__ import annotations

import random
from collections.abc import Callable


def unspread() -> float:
    """Jitter for what is one of its kind, or is spread by other means: none."""
    return 1.0


def backoff_seconds(failures: int, *, first: float, cap: float, jitter: Callable[[], float] = random.random) -> float:
    """Seconds after the `failures`-th failure in a row (from 1): 50 to 100 % of what doubles from `first` to `cap`.

    `jitter` gives a number from 0 to 1.
    """
    full = min(cap, first * 2.0 ** min(failures - 1, 60))
    return full * (0.5 + jitter() / 2)


class Backoff:
    """Counts the failures in a row of one thing."""

    def __init__(self, *, first: float, cap: float, jitter: Callable[[], float] = random.random) -> None:
        self._first, self._cap, self._jitter = first, cap, jitter
        self.failures = 0

    def failed(self) -> float:
        """Seconds to wait after one more failure."""
        self.failures += 1
        return backoff_seconds(self.failures, first=self._first, cap=self._cap, jitter=self._jitter)

    def succeeded(self) -> None:
        self.failures = 0
