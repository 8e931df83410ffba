"""How long the agent waits, as a table."""

from __future__ import annotations

import pytest

from provisioner.node.retry import NO_ANSWER, NO_ROUTE, NOT_YET, REFUSED, wait_seconds


@pytest.mark.parametrize(
    ("outcome", "failures", "asked", "shortest", "longest"),
    [
        (NO_ROUTE, 1, None, 0.125, 0.25),
        (NO_ROUTE, 40, None, 0.125, 0.25),
        (NO_ROUTE, 41, None, 1.0, 2.0),
        (NO_ANSWER, 1, None, 0.25, 0.5),
        (NO_ANSWER, 4, None, 2.0, 4.0),
        (NO_ANSWER, 100_000, None, 15.0, 30.0),
        (NO_ANSWER, 1, 7.0, 7.0, 8.75),
        (NO_ANSWER, 1, 86_400.0, 120.0, 150.0),
        (NOT_YET, 1, 5.0, 5.0, 6.25),
        (NOT_YET, 3, 0.0, 0.25, 0.3125),
        (NOT_YET, 3, None, 1.0, 2.0),
        (REFUSED, 1, None, 7.5, 15.0),
        (REFUSED, 9, None, 30.0, 60.0),
        (REFUSED, 1, 0.0, 7.5, 15.0),
    ],
)
def test_the_wait_is_between_its_bounds_and_is_spread_by_chance(
    outcome: str, failures: int, asked: float | None, shortest: float, longest: float
) -> None:
    assert wait_seconds(outcome, failures, asked, 0.0) == pytest.approx(shortest)
    assert wait_seconds(outcome, failures, asked, 1.0) == pytest.approx(longest)
