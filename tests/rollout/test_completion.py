"""When a rollout can be complete."""

from __future__ import annotations

import heapq

from hypothesis import given
from hypothesis import strategies as st

from provisioner.rollout.completion import lower_bound


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
