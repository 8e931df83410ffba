"""A backend has its own few calls and its own breaker; what it does changes nothing for the others."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress

import pytest

from provisioner.outbound.bulkhead import Bulkhead, LanePolicy, NoRoom

POLICY = LanePolicy(calls=2, failures=3, first_seconds=10.0, cap_seconds=40.0)
HUNG, OTHER = "https://hung.example", "https://other.example"


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bulkhead(clock: Clock) -> Bulkhead:
    return Bulkhead("slurmrestd", POLICY, clock=clock, spread=lambda: 1.0)


def fail(bulkhead: Bulkhead, key: str = HUNG, times: int = 1) -> None:
    for _ in range(times):
        with suppress(TimeoutError), bulkhead.call(key):
            raise TimeoutError("no answer in time")


def test_a_call_that_finds_no_room_fails_at_once_and_says_why(bulkhead: Bulkhead) -> None:
    with bulkhead.call(HUNG), bulkhead.call(HUNG):
        with pytest.raises(NoRoom, match="is not asked: 2 calls to it are under way, of at most 2 at a time"):
            bulkhead._begin(HUNG)
        with bulkhead.call(OTHER):
            pass
    with bulkhead.call(HUNG):
        pass


def test_failures_in_a_row_open_the_breaker(bulkhead: Bulkhead, clock: Clock) -> None:
    fail(bulkhead, times=2)
    assert bulkhead.refusal(HUNG) is None
    fail(bulkhead)
    clock.seconds += 4
    with pytest.raises(NoRoom) as refused, bulkhead.call(HUNG):
        raise AssertionError
    words = "3 calls in a row have failed for 4 s (no answer in time); the next attempt is in 6 s"
    assert str(refused.value) == f"slurmrestd at {HUNG} is not asked: {words}"
    assert refused.value.after_seconds == 6
    assert bulkhead.lanes()[HUNG].breaker == "Open"
    with bulkhead.call(OTHER):
        pass


def test_one_probe_at_a_time_goes_through_after_the_backoff(bulkhead: Bulkhead, clock: Clock) -> None:
    fail(bulkhead, times=3)
    clock.seconds += 10
    with bulkhead.call(HUNG):
        assert bulkhead.lanes()[HUNG].breaker == "HalfOpen"
        with pytest.raises(NoRoom, match="a probe is under way"), bulkhead.call(HUNG):
            raise AssertionError
    assert bulkhead.lanes()[HUNG].breaker == "Closed"
    assert bulkhead.lanes()[HUNG].failing_since is None


def test_the_backoff_grows_to_its_cap_and_has_spread(clock: Clock) -> None:
    for spread, waits in ((1.0, (10, 20, 40, 40)), (0.0, (5, 10, 20, 20))):
        bulkhead = Bulkhead("slurmrestd", POLICY, clock=clock, spread=lambda spread=spread: spread)
        fail(bulkhead, times=2)
        for wait in waits:
            fail(bulkhead)
            probe_at = bulkhead.lanes()[HUNG].probe_at
            assert probe_at is not None
            assert probe_at - clock() == wait
            clock.seconds = probe_at


def test_an_error_that_is_an_answer_is_no_failure(bulkhead: Bulkhead) -> None:
    for _ in range(5):
        with suppress(ValueError), bulkhead.call(HUNG):
            raise ValueError("no such node")
    assert bulkhead.lanes()[HUNG].failures == 0


def test_one_success_ends_a_row_of_failures(bulkhead: Bulkhead) -> None:
    for _ in range(5):
        fail(bulkhead, times=2)
        with bulkhead.call(HUNG):
            pass
    assert bulkhead.refusal(HUNG) is None


def test_the_number_of_lanes_is_bounded_and_open_breakers_are_kept(clock: Clock) -> None:
    bulkhead = Bulkhead("slurmrestd", POLICY, clock=clock, max_lanes=3)
    fail(bulkhead, times=3)
    for number in range(100):
        clock.seconds += 0.01
        with bulkhead.call(f"https://{number}.example"):
            pass
    assert set(bulkhead.lanes()) == {HUNG, "https://98.example", "https://99.example"}
    with ExitStack() as calls:
        for number in range(3):
            calls.enter_context(bulkhead.call(f"https://{number}.example"))
        with pytest.raises(NoRoom, match="calls to 3 backends of kind slurmrestd are under way"):
            bulkhead._begin(OTHER)


def test_a_forgotten_backend_begins_anew_but_not_in_the_middle_of_a_call(bulkhead: Bulkhead) -> None:
    fail(bulkhead, times=3)
    bulkhead.forget(HUNG)
    with bulkhead.call(HUNG):
        bulkhead.forget(HUNG)
    assert bulkhead.lanes()[HUNG].calls == 0


def test_threads_never_exceed_the_room(bulkhead: Bulkhead) -> None:
    inside, most, refused = [0], [0], [0]
    lock = threading.Lock()

    def ask() -> None:
        for _ in range(200):
            try:
                with bulkhead.call(HUNG):
                    with lock:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    with lock:
                        inside[0] -= 1
            except NoRoom:
                with lock:
                    refused[0] += 1

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= POLICY.calls
    assert bulkhead.lanes()[HUNG].calls == 0
