"""How many more jobs fail at the least: against arithmetic done otherwise, and against what a single look says."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.api.pools.rollout_status import JobTally
from provisioner.rollout.workloads.evidence import evidence_against, least_difference
from tests.rollout.workloads.newcombe import newcombe


def tally(failed: int, ended: int) -> JobTally:
    return JobTally(ended=ended, failed=failed)


NONE = tally(0, 0)

TALLIES = st.integers(0, 500).flatmap(lambda n: st.integers(0, n).map(lambda failed: tally(failed, n)))


def mean_likelihood(counted: JobTally) -> Fraction:
    """Over Jeffreys' prior, job by job: the next one fails with (failures so far + 1/2) of (jobs so far + 1)."""
    product = Fraction(1)
    for before, failed in enumerate([1] * counted.failed + [0] * (counted.ended - counted.failed)):
        seen = min(before, counted.failed) if failed else before - counted.failed
        product *= Fraction(2 * seen + 1, 2 * (before + 1))
    return product


def likelihood(counted: JobTally, rate: Fraction) -> Fraction:
    return rate**counted.failed * (1 - rate) ** (counted.ended - counted.failed)


def test_evidence_against_a_known_rate_is_what_exact_fractions_say() -> None:
    counted, rate = tally(7, 12), Fraction(1, 5)
    exact = mean_likelihood(counted) / likelihood(counted, rate)
    found = evidence_against(0.0, NONE, counted, old_at_most=float(rate))
    assert found == pytest.approx(math.log(exact))


def test_one_failed_job_has_the_bound_that_one_can_work_out_by_hand() -> None:
    # Its mean likelihood is 1/2, and 1/2 over p reaches 20 at p = 1/40.
    assert least_difference(NONE, tally(1, 1), 0.95, old_at_most=0.0) == pytest.approx(1 / 40)


@pytest.mark.parametrize("difference", [-0.3, 0.0, 0.05, 0.4])
def test_no_pair_of_rates_within_the_difference_explains_the_counts_better(difference: float) -> None:
    old, new = tally(3, 40), tally(9, 12)
    grid = [Fraction(step, 200) for step in range(1, 200)]
    within = [(p, q) for p, q in itertools.product(grid, grid) if q - p <= Fraction(difference)]
    best = max(likelihood(old, p) * likelihood(new, q) for p, q in within)
    on_grid = math.log(mean_likelihood(old) * mean_likelihood(new) / best)
    found = evidence_against(difference, old, new)
    assert found <= on_grid + 1e-9
    assert found == pytest.approx(on_grid, abs=0.05)


def test_the_interval_to_compare_with_is_the_published_one() -> None:
    # Newcombe 1998, table II: 56 of 70 and 48 of 80, method 10.
    assert newcombe(tally(48, 80), tally(56, 70), 0.95) == pytest.approx((0.0524, 0.3339), abs=5e-5)
    assert newcombe(tally(3, 10), tally(9, 10), 0.95) == pytest.approx((0.1705, 0.8090), abs=5e-5)


@given(TALLIES, TALLIES, st.sampled_from([0.8, 0.95, 0.99]))
@settings(max_examples=100)
def test_it_is_never_more_than_was_observed_and_no_more_than_a_single_look_says(
    old: JobTally, new: JobTally, confidence: float
) -> None:
    least = least_difference(old, new, confidence)
    assert -1 <= least <= 1
    if old.ended and new.ended:
        assert least <= new.failed / new.ended - old.failed / old.ended + 1e-9
    if old.ended > 20 and new.ended > 20:
        assert least < newcombe(old, new, 1 - 2 * (1 - confidence))[0] + 0.01


def test_with_many_jobs_it_comes_close_to_what_was_observed() -> None:
    least = least_difference(tally(3_000, 100_000), tally(8_000, 100_000), 0.95)
    assert 0.044 < least < 0.05
    assert 0.0499 < least_difference(tally(3 * 10**7, 10**9), tally(8 * 10**7, 10**9), 0.95) < 0.05


@given(TALLIES, TALLIES)
@settings(max_examples=50)
def test_it_is_the_same_if_success_and_failure_and_both_images_change_places(old: JobTally, new: JobTally) -> None:
    mirrored_old, mirrored_new = tally(new.ended - new.failed, new.ended), tally(old.ended - old.failed, old.ended)
    assert least_difference(old, new, 0.95) == pytest.approx(
        least_difference(mirrored_old, mirrored_new, 0.95), abs=1e-9
    )


@pytest.mark.parametrize("old", [NONE, tally(0, 3), tally(2, 3), tally(5, 60), tally(60, 60)])
def test_each_failure_on_the_new_image_raises_it_and_each_on_the_old_one_lowers_it(old: JobTally) -> None:
    for ended in (1, 2, 5, 13, 40):
        rising = [least_difference(old, tally(failed, ended), 0.9) for failed in range(ended + 1)]
        falling = [least_difference(tally(failed, ended), old, 0.9) for failed in range(ended + 1)]
        assert rising == sorted(rising)
        assert falling == sorted(falling, reverse=True)
        assert rising[-1] > rising[0] or not old.ended


def test_more_certainty_asks_for_more() -> None:
    bounds = [least_difference(tally(3, 100), tally(8, 15), confidence) for confidence in (0.5, 0.8, 0.95, 0.99)]
    assert bounds == sorted(bounds, reverse=True)


def test_a_tally_that_cannot_be_counts_as_all_failed() -> None:
    assert least_difference(tally(3, 100), tally(9, 5), 0.95) == least_difference(tally(3, 100), tally(5, 5), 0.95)
