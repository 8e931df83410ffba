"""The token bucket, as time goes by."""

from __future__ import annotations

import pytest

from provisioner.join.admission.rate import Buckets


def test_a_burst_passes_and_then_the_source_waits() -> None:
    buckets = Buckets(per_second=0.5, burst=3)
    assert [buckets.wait_seconds("a", 0.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert buckets.wait_seconds("a", 0.0) == pytest.approx(2.0)
    assert buckets.wait_seconds("a", 1.0) == pytest.approx(1.0)
    assert buckets.wait_seconds("a", 2.0) == 0.0
    assert buckets.wait_seconds("a", 2.0) > 0.0


def test_one_source_does_not_use_up_anothers() -> None:
    buckets = Buckets(per_second=1, burst=1)
    assert buckets.wait_seconds("a", 0.0) == 0.0
    assert buckets.wait_seconds("a", 0.0) > 0.0
    assert buckets.wait_seconds("b", 0.0) == 0.0


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    buckets = Buckets(per_second=1, burst=1)
    assert buckets.wait_seconds("a", 100.0) == 0.0
    assert buckets.wait_seconds("a", 0.0) > 0.0


def test_memory_is_bounded_and_the_longest_silent_source_is_forgotten() -> None:
    buckets = Buckets(per_second=0.001, burst=1, max_sources=2)
    for source in ("a", "b", "a", "c"):
        buckets.wait_seconds(source, 0.0)
    assert buckets.wait_seconds("a", 0.0) > 0.0
    assert buckets.wait_seconds("b", 0.0) == 0.0
