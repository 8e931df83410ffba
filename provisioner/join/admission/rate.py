"""A token bucket per source: who asks more often than `per_second` after `burst` requests has to wait. Pure."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True)
class Bucket:
    """`tokens` that were left at the moment `at_seconds` of a monotonic clock."""

    tokens: float
    at_seconds: float


def take(bucket: Bucket | None, now_seconds: float, *, per_second: float, burst: float) -> tuple[Bucket, float]:
    """The bucket after one request, and how many seconds the source has to wait (0.0: the request may pass).

    A request that has to wait costs nothing.
    """
    if bucket is None:
        bucket = Bucket(burst, now_seconds)
    elapsed = max(0.0, now_seconds - bucket.at_seconds)
    tokens = min(burst, bucket.tokens + elapsed * per_second)
    if tokens >= 1.0:
        return Bucket(tokens - 1.0, now_seconds), 0.0
    return Bucket(tokens, now_seconds), (1.0 - tokens) / per_second


class Buckets:
    """The buckets of all sources; of more than `max_sources` the longest silent one is forgotten."""

    def __init__(self, *, per_second: float, burst: float, max_sources: int = 65_536) -> None:
        self._per_second = per_second
        self._burst = burst
        self._max_sources = max_sources
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def wait_seconds(self, source: str, now_seconds: float) -> float:
        """Count one request of `source`; 0.0 if it may pass. Not safe for several threads at once."""
        bucket, wait = take(self._buckets.get(source), now_seconds, per_second=self._per_second, burst=self._burst)
        self._buckets[source] = bucket
        self._buckets.move_to_end(source)
        while len(self._buckets) > self._max_sources:
            self._buckets.popitem(last=False)
        return wait
