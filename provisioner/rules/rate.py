"""How often somebody may do something: token buckets, without a clock of their own."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True)
class TokenBucket:
    """`rate_per_second` on average, `burst` at once."""

    rate_per_second: float
    burst: float
    tokens: float
    updated_seconds: float

    @classmethod
    def full(cls, *, rate_per_second: float, burst: float, now_seconds: float) -> TokenBucket:
        return cls(rate_per_second, burst, burst, now_seconds)

    def take(self, now_seconds: float) -> tuple[TokenBucket, float]:
        """The bucket afterwards, and how many seconds there are to wait; 0.0: there was a token, else none is taken.

        `now_seconds` is monotonic; going back adds nothing.
        """
        elapsed = max(0.0, now_seconds - self.updated_seconds)
        tokens = min(self.burst, self.tokens + elapsed * self.rate_per_second)
        taken = tokens >= 1.0
        updated = max(now_seconds, self.updated_seconds)
        after = TokenBucket(self.rate_per_second, self.burst, tokens - taken, updated)
        return after, 0.0 if taken else (1.0 - tokens) / self.rate_per_second


class SourceLimit:
    """A bucket per source; of more than `max_sources` the longest silent one is forgotten. Usable from any thread."""

    def __init__(self, *, rate_per_second: float, burst: float, max_sources: int = 65_536) -> None:
        self._rate, self._burst, self._max_sources = rate_per_second, burst, max_sources
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait_seconds(self, source: str, now_seconds: float) -> float:
        """Count one request of `source`; 0.0 if it may pass."""
        with self._lock:
            bucket = self._buckets.pop(source, None) or TokenBucket.full(
                rate_per_second=self._rate, burst=self._burst, now_seconds=now_seconds
            )
            self._buckets[source], wait = bucket.take(now_seconds)
            if len(self._buckets) > self._max_sources:
                self._buckets.popitem(last=False)
        return wait
