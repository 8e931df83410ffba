"""Which queue a BMC is in follows from what it costs. Time is the test's."""

from __future__ import annotations

from itertools import pairwise

import pytest

from provisioner.power.standing import (
    BURST_SECONDS,
    REST_SECONDS,
    SHARE,
    BmcQueueState,
    failed,
    overdue,
    rest_seconds,
    visited,
)


def polled(
    look_seconds: float, times: int, *, poll_seconds: float = 10.0, first: BmcQueueState | None = None
) -> BmcQueueState:
    """After so many looks, each `poll_seconds` after the end of the one before, or when its rest is over."""
    standing, now = first or BmcQueueState(), 0.0
    for _ in range(times):
        queue = standing.queue
        now += look_seconds
        standing = visited(standing, look_seconds, now)
        now += max(poll_seconds, rest_seconds(queue, look_seconds))
    return standing


@pytest.mark.parametrize("look_seconds", [0.01, 0.5, 1.0, 1.1])
def test_a_bmc_within_its_share_stays_among_the_prompt(look_seconds: float) -> None:
    assert polled(look_seconds, 1000).queue == "Prompt"


@pytest.mark.parametrize("look_seconds", [1.3, 2.9, 9.0, 29.0])
def test_a_bmc_that_answers_just_in_time_is_among_the_slow_before_long(look_seconds: float) -> None:
    assert polled(look_seconds, 60).queue == "Slow"


@pytest.mark.parametrize("look_seconds", [3.1, 9.0, 29.0])
def test_a_slow_bmc_takes_no_more_than_its_share_of_a_worker(look_seconds: float) -> None:
    assert look_seconds / (look_seconds + rest_seconds("Slow", look_seconds)) <= SHARE


def test_even_the_worst_is_looked_at_again_within_minutes() -> None:
    assert rest_seconds("Slow", 1e6) == REST_SECONDS == 300


def test_only_the_slow_have_to_rest() -> None:
    assert [rest_seconds(queue, 29.0) for queue in ("New", "Prompt", "Unreachable")] == [0.0] * 3


def test_a_login_does_not_make_a_bmc_slow() -> None:
    assert visited(BmcQueueState("New"), 9.9, 9.9) == BmcQueueState("Prompt", at=9.9)
    assert visited(BmcQueueState("Unreachable", 3), 29.0, 29.0).queue == "Prompt"


def test_a_slow_bmc_that_was_mended_comes_back() -> None:
    slow = polled(29.0, 3)
    assert slow.queue == "Slow"
    assert polled(0.2, 60, first=BmcQueueState("Slow", 0, slow.budget_seconds, 0.0)).queue == "Prompt"


def test_a_bmc_that_is_slow_now_and_then_does_not_swing_between_the_queues() -> None:
    standing, now, queues = BmcQueueState("Prompt"), 0.0, []
    for number in range(600):
        look = 2.9 if number % 2 else 0.1
        now += look + 10.0
        standing = visited(standing, look, now)
        queues.append(standing.queue)
    changes = sum(before != after for before, after in pairwise(queues))
    assert changes < 20


def test_who_takes_too_long_among_the_prompt_is_asked_among_the_slow_and_a_new_one_among_the_unreachable() -> None:
    assert overdue(BmcQueueState("Prompt"), 3.0, 3.0).queue == "Slow"
    assert overdue(BmcQueueState("New"), 10.0, 10.0).queue == "Unreachable"
    assert overdue(BmcQueueState("Prompt"), 3.0, 3.0).failures == 0, "nothing is known of it yet"


def test_failing_is_no_way_to_have_ones_time_given_back() -> None:
    """It answers a look, drips when it is told to act, fails, answers a look again."""
    standing, now = BmcQueueState("Prompt"), 0.0
    for _ in range(3):
        now += 29.0
        standing = failed(standing, 29.0, now)
        assert (standing.queue, standing.failures) == ("Unreachable", 1)
        now += 5.0
        standing = visited(standing, 0.1, now)
        now += 10.0
        standing = visited(standing, 0.1, now)
        assert standing.queue == "Slow"


def test_a_bmc_that_refused_a_connection_is_prompt_again_when_it_takes_one() -> None:
    refused = failed(BmcQueueState("Prompt"), 0.01, 1.0)
    assert visited(refused, 0.1, 6.0).queue == "Prompt"


def test_a_visit_without_an_answer_makes_no_bmc_prompt() -> None:
    """As of one that refuses the password, or that was not even asked."""
    assert visited(BmcQueueState("New"), 0.0, 1.0, answered=False).queue == "New"
    assert visited(BmcQueueState("Unreachable", 3), 0.5, 1.0, answered=False) == BmcQueueState("Unreachable", 3)
    assert visited(BmcQueueState("Prompt"), 25.0, 25.0, answered=False).queue == "Slow"


def test_nothing_is_saved_beyond_the_burst() -> None:
    assert visited(BmcQueueState("Prompt"), 0.0, 1e9).budget_seconds == BURST_SECONDS
