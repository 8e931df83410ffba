"""The token bucket, as time goes by."""

from __future__ import annotations

import pytest

from provisioner.rules.rate import SourceLimit, TokenBucket


def test_a_burst_passes_and_then_the_source_waits() -> None:
    limit = SourceLimit(rate_per_second=0.5, burst=3)
    assert [limit.wait_seconds("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert limit.wait_seconds("a", 0.0) == pytest.approx(2.0)
    assert limit.wait_seconds("a", 1.0) == pytest.approx(1.0)
    assert limit.wait_seconds("a", 2.0) == 0.0
    assert limit.wait_seconds("a", 2.0) > 0.0


def test_one_source_does_not_use_up_anothers() -> None:
    limit = SourceLimit(rate_per_second=1, burst=1)
    assert limit.wait_seconds("a", 0.0) == 0.0
    assert limit.wait_seconds("a", 0.0) > 0.0
    assert limit.wait_seconds("b", 0.0) == 0.0


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    limit = SourceLimit(rate_per_second=1, burst=1)
    assert limit.wait_seconds("a", 100.0) == 0.0
    assert limit.wait_seconds("a", 0.0) > 0.0


def test_memory_is_bounded_and_the_longest_silent_source_is_forgotten() -> None:
    limit = SourceLimit(rate_per_second=0.001, burst=1, max_sources=2)
    for source in ("a", "b", "a", "c"):
        limit.wait_seconds(source, 0.0)
    assert limit.wait_seconds("a", 0.0) > 0.0
    assert limit.wait_seconds("b", 0.0) == 0.0


def test_the_rate_limit_allows_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket.full(rate_per_second=2.0, burst=3, now_seconds=100.0)
    taken = []
    for now in (100.0, 100.0, 100.0, 100.0, 100.4, 100.5, 100.6, 99.0, 101.1, 200.0):
        bucket, token = bucket.take(now)
        taken.append(token == 0.0)
    assert taken == [True, True, True, False, False, True, False, False, True, True]
