"""When a rollout can be complete."""

from __future__ import annotations

import heapq
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from provisioner.rollout.completion import expect_completion, lower_bound
from tests.rollout.fleets import NOON, busy, fleet


def one_after_the_other(releases: list[float], parallel: int, attempt: float) -> float:
    """Begin each when it is released, or as soon as one of `parallel` places is free; when the last one is done."""
    places = [0.0] * parallel
    done = 0.0
    for release in sorted(releases):
        begin = max(release, heapq.heappop(places))
        done = max(done, begin + attempt)
        heapq.heappush(places, begin + attempt)
    return done


@given(
    releases=st.lists(st.integers(0, 5000).map(float), max_size=30),
    parallel=st.integers(1, 8),
    attempt=st.sampled_from([1.0, 60.0, 600.0]),
)
def test_the_bound_is_what_beginning_each_server_at_its_release_takes(
    releases: list[float], parallel: int, attempt: float
) -> None:
    assert lower_bound(releases, parallel, attempt) == one_after_the_other(releases, parallel, attempt)


def test_without_servers_there_is_nothing_to_wait_for() -> None:
    assert lower_bound([], 3, 600.0) == 0.0


def test_nothing_is_expected_where_an_end_is_not_known_or_none_may_go_on() -> None:
    known, unknown = busy("a", "Pod jobs/train", ends=2), busy("b", "Pod jobs/more")
    found = fleet(known, unknown)
    assert expect_completion(found, 0, [known], 0, 1, NOON) == NOON + timedelta(hours=2) + found.attempt
    assert expect_completion(found, 0, [known, unknown], 0, 1, NOON) is None
    assert expect_completion(found, 1, [], 0, 0, NOON) is None
    assert expect_completion(found, 0, [], 1, 1, NOON) == NOON + found.attempt
