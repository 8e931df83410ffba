"""Whether a rollout stops for its jobs: examples in words, and many rollouts at random."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache
from itertools import islice
from statistics import median
from typing import Any

import pytest

from provisioner.api.pools.rollout_status import JobTally
from provisioner.api.pools.upgrade_strategy import WorkloadGate
from provisioner.rollout.workloads.compare import PRESUMED_AT_MOST, WorkloadVerdict, compare
from provisioner.rollout.workloads.evidence import evidence_against
from tests.rollout.workloads.newcombe import newcombe

pytestmark = pytest.mark.slow

JOBS = 200
"""Jobs that end on the new image in a rollout that is played."""


def tally(failed: int, ended: int) -> JobTally:
    return JobTally(ended=ended, failed=failed)


def judged(old: JobTally, new: JobTally, *, running: int = 0, **gate: Any) -> WorkloadVerdict:
    return compare(old, new, WorkloadGate(**gate), running=running)


def test_a_driver_that_breaks_most_jobs_is_bad_and_the_words_say_why() -> None:
    verdict = judged(tally(12, 400), tally(6, 10))
    assert verdict.name == "Bad"
    assert verdict.words == (
        "6 of 10 jobs (60 %) failed on the new image, 12 of 400 (3 %) on the old one: "
        "at least 6.6 percentage points more with 95 % certainty, 5 are tolerated"
    )


def test_three_of_ten_may_be_chance() -> None:
    verdict = judged(tally(12, 400), tally(3, 10))
    assert verdict.name == "Good"
    assert verdict.words.endswith("on the old one: that more fail is not certain (at 95 %), 5 are tolerated")


def test_what_is_tolerated_is_good_however_certain_it_is() -> None:
    verdict = judged(tally(30_000, 1_000_000), tally(70_000, 1_000_000))
    assert verdict.name == "Good"
    assert judged(tally(30_000, 1_000_000), tally(70_000, 1_000_000), tolerance_percent=3).name == "Bad"


def test_a_stage_waits_for_jobs_but_a_stop_does_not() -> None:
    waiting = judged(tally(0, 50), tally(0, 2), minimum_jobs=10)
    assert waiting.name == "TooFew"
    assert waiting.words.endswith("on the old one: 8 more must end on the new image")
    assert judged(tally(0, 50), tally(9, 9), minimum_jobs=10).name == "Bad"
    assert judged(tally(0, 50), tally(0, 10), minimum_jobs=10).name == "Good"


def test_without_any_job_nothing_is_bad() -> None:
    assert judged(tally(0, 0), tally(0, 0)).name == "Good"
    assert judged(tally(5, 5), tally(0, 0), minimum_jobs=1).name == "TooFew"


def test_where_nothing_is_known_of_the_old_image_a_few_failures_conclude_nothing_but_failures_alone_do() -> None:
    nothing = tally(0, 0)
    assert judged(nothing, tally(5, 5)).name == "Good"
    assert judged(nothing, tally(12, 20)).name == "Good"
    assert judged(nothing, tally(8, 8)).name == "Bad"
    assert "none has ended on the old one, of which half are presumed" in judged(nothing, tally(20, 20)).words


def test_that_presumption_ends_where_most_jobs_fail_on_the_old_image_too() -> None:
    assert judged(tally(2, 2), tally(20, 20)).name == "Good"
    assert judged(tally(28, 40), tally(28, 40)).name == "Good"


def test_jobs_that_run_count_as_not_failed_since_what_fails_at_once_ends_first() -> None:
    # 500 jobs began on the new image an hour ago, and 3 % of them failed at their start, as ever.
    old, new = tally(12, 400), tally(15, 15)
    assert judged(old, new, running=485).name == "Good"
    assert "15 of 15 jobs (100 %) failed on the new image, where 485 more run" in judged(old, new, running=485).words
    assert judged(old, new, running=0).name == "Bad"


@pytest.mark.parametrize("old", [tally(0, 0), tally(1, 1), tally(1, 30), tally(20, 30)])
def test_another_failure_on_the_new_image_never_turns_bad_into_good(old: JobTally) -> None:
    for ended in range(1, 25):
        bad = [judged(old, tally(failed, ended), tolerance_percent=0).name == "Bad" for failed in range(ended + 1)]
        assert bad == sorted(bad)


def test_words_fit_where_they_are_written() -> None:
    huge = tally(10**9, 10**9 + 7)
    assert len(judged(huge, huge, running=10**9, minimum_jobs=100_000).words) < 1024


@cache
def evidence(old: JobTally, new: JobTally, tolerance: float) -> float:
    """What `compare` decides by, without the search for the bound that people are told."""
    at_most = PRESUMED_AT_MOST if old.failed <= PRESUMED_AT_MOST * old.ended else 1.0
    return evidence_against(tolerance, old, new, old_at_most=at_most)


def play(random: random.Random, old_rate: float, new_rate: float, known: int) -> Iterator[tuple[JobTally, JobTally]]:
    """Tallies after each job that ends on the new image; another ends on the old one meanwhile."""
    old, new = tally(sum(random.random() < old_rate for _ in range(known)), known), tally(0, 0)
    for _ in range(JOBS):
        old = tally(old.failed + (random.random() < old_rate), old.ended + 1)
        new = tally(new.failed + (random.random() < new_rate), new.ended + 1)
        yield old, new


def test_this_is_what_compare_decides_by() -> None:
    for old, new in islice(play(random.Random(7), 0.05, 0.4, 30), 60):
        by_evidence = evidence(old, new, 0.05) >= math.log(20)
        assert (judged(old, new).name == "Bad") == by_evidence
    assert by_evidence


@pytest.mark.parametrize(("rate", "known"), [(0.03, 100), (0.2, 20), (0.5, 20), (0.5, 0)])
def test_a_rollout_that_is_as_good_is_stopped_no_more_often_than_the_confidence_allows(rate: float, known: int) -> None:
    seeded = random.Random(f"{rate} {known}")
    most = [max(evidence(old, new, 0.0) for old, new in play(seeded, rate, rate, known)) for _ in range(300)]
    for confidence in (0.5, 0.8, 0.95):
        stopped = sum(found >= -math.log1p(-confidence) for found in most) / len(most)
        assert stopped <= 1 - confidence


def test_a_difference_that_is_there_is_overestimated_no_more_often_either() -> None:
    seeded = random.Random(3)
    most = [max(evidence(old, new, 0.2) for old, new in play(seeded, 0.1, 0.3, 50)) for _ in range(300)]
    assert 0 < sum(found >= math.log(2) for found in most) / len(most) <= 0.5
    assert sum(found >= math.log(20) for found in most) / len(most) <= 0.05


def test_an_interval_for_one_look_would_stop_too_many_that_are_as_good() -> None:
    seeded, stopped = random.Random(5), 0
    for _ in range(300):
        stopped += any(newcombe(old, new, 0.9)[0] > 0 for old, new in play(seeded, 0.2, 0.2, 20))
    assert stopped / 300 > 0.15


@pytest.mark.parametrize(("known", "half_by", "most_by"), [(20, 15, 35), (100, 12, 26), (400, 12, 26)])
def test_a_driver_that_breaks_half_of_the_jobs_is_noticed_after_a_dozen(known: int, half_by: int, most_by: int) -> None:
    seeded, noticed = random.Random(11), []
    for _ in range(100):
        rollout = enumerate(play(seeded, 0.03, 0.5 + 0.5 * 0.03, known), start=1)
        noticed.append(next(number for number, (old, new) in rollout if evidence(old, new, 0.05) >= math.log(20)))
    assert median(noticed) <= half_by
    assert sorted(noticed)[89] <= most_by
