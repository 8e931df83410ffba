"""The queue's promises, with a clock that the test moves."""

from __future__ import annotations

import threading
import time
from collections import Counter
from queue import SimpleQueue

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.backoff import backoff_seconds
from provisioner.cluster.work_queue import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS, WorkQueue
from tests.people import until


class FakeClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def queue(clock: FakeClock) -> WorkQueue:
    return WorkQueue(clock=clock, jitter=lambda: 1.0)


def test_a_key_added_twice_is_worked_on_once(queue: WorkQueue) -> None:
    queue.add("a")
    queue.add("a")
    assert queue.get(0) == "a"
    assert queue.get(0) is None


def test_keys_come_in_the_order_in_which_they_were_added(queue: WorkQueue) -> None:
    for key in "bac":
        queue.add(key)
    assert [queue.get(0) for _ in range(3)] == ["b", "a", "c"]


def test_a_key_added_while_worked_on_comes_again_once_and_not_before_it_is_done(queue: WorkQueue) -> None:
    queue.add("a")
    assert queue.get(0) == "a"
    queue.add("a")
    queue.add("a")
    assert queue.get(0) is None
    queue.done("a")
    assert queue.get(0) == "a"
    queue.done("a")
    assert queue.get(0) is None


def test_a_delayed_key_comes_when_it_is_due(queue: WorkQueue, clock: FakeClock) -> None:
    queue.add_after("a", 5)
    clock.now += 4.9
    assert queue.get(0) is None
    clock.now += 0.2
    assert queue.get(0) == "a"


def test_what_is_to_be_first_goes_before_what_waits_already_itself_among_it(queue: WorkQueue, clock: FakeClock) -> None:
    assert queue.get(0) is None
    for key in "abc":
        queue.add(key)
    queue.add_first_after("c", 1)
    queue.add_first_after("d", 1)
    assert queue.get(0) == "a", "it is not due yet"
    queue.add_first_after("a", 1)
    clock.now += 2
    assert [queue.get(0), queue.get(0)] == ["c", "d"]
    queue.done("a")
    assert [queue.get(0), queue.get(0), queue.get(0)] == ["a", "b", None], "once, and first also after it was worked on"


def test_what_goes_first_keeps_neither_others_nor_the_backlog_waiting_for_ever(
    queue: WorkQueue, clock: FakeClock
) -> None:
    queue.add("old")
    assert queue.get(0) == "old"
    queue.add("late")
    taken = []
    for number in range(100):
        queue.add_first_after(f"first-{number}", 0)
        queue.add_first_after(f"more-{number}", 0)
        taken.append(queue.get(0))
    assert "late" in taken[:8]
    restarted = WorkQueue(clock=clock)
    for key in ("old-1", "old-2"):
        restarted.add(key)
    assert restarted.get(0) == "old-1"
    for number in range(200):
        restarted.add_first_after(f"first-{number}", 0)
        restarted.add(f"more-{number}")
    assert "old-2" in [restarted.get(0) for _ in range(64)]


def test_of_two_delays_the_earlier_moment_stays(queue: WorkQueue, clock: FakeClock) -> None:
    queue.add_after("a", 5)
    queue.add_after("a", 50)
    queue.add_after("b", 50)
    queue.add_after("b", 5)
    clock.now += 6
    assert {queue.get(0), queue.get(0)} == {"a", "b"}
    queue.done("a")
    queue.done("b")
    clock.now += 100
    assert queue.get(0) is None, "the later moment is not kept beside it"


def test_retries_wait_longer_and_longer_until_the_key_is_forgotten(queue: WorkQueue) -> None:
    waits = [queue.retry("a") for _ in range(20)]
    assert waits[:4] == [FIRST_RETRY_SECONDS * factor for factor in (1, 2, 4, 8)]
    assert waits[-1] == LAST_RETRY_SECONDS
    assert queue.retry("b") == FIRST_RETRY_SECONDS, "each key has its own backoff"
    queue.forget("a")
    assert queue.retry("a") == FIRST_RETRY_SECONDS


def test_a_retry_is_not_sooner_than_the_server_asked(queue: WorkQueue, clock: FakeClock) -> None:
    assert queue.retry("a", at_least_seconds=30) == 30
    clock.now += 29
    assert queue.get(0) is None
    clock.now += 2
    assert queue.get(0) == "a"


def test_a_shut_down_queue_takes_and_gives_nothing(queue: WorkQueue) -> None:
    queue.add("a")
    queue.shut_down()
    queue.add("b")
    assert queue.get() is None


def test_shutting_down_wakes_the_waiting_workers() -> None:
    queue = WorkQueue()
    worker = threading.Thread(target=queue.get)
    worker.start()
    queue.shut_down()
    worker.join(60)
    assert not worker.is_alive()


def test_a_second_worker_takes_what_becomes_due_while_the_first_is_busy() -> None:
    queue = WorkQueue()
    taken: dict[str, threading.Event] = {"first": threading.Event(), "second": threading.Event()}
    release = threading.Event()

    def work() -> None:
        while (key := queue.get()) is not None:
            taken[key].set()
            release.wait(60)
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    queue.add_after("first", 0.2)
    queue.add_after("second", 0.4)
    assert taken["first"].wait(60)
    assert taken["second"].wait(60)
    release.set()
    queue.shut_down()
    for worker in workers:
        worker.join(60)


def test_a_key_that_is_put_off_wakes_at_most_one_of_the_idle_workers() -> None:
    looks: Counter[str] = Counter()
    waiting: set[str] = set()

    def clock() -> float:
        looks[threading.current_thread().name] += 1
        return time.monotonic()

    class Watched(WorkQueue):
        def _wait(self, now: float, deadline: float | None) -> None:
            waiting.add(threading.current_thread().name)
            super()._wait(now, deadline)

    queue = Watched(clock=clock)
    workers = [threading.Thread(target=queue.get, name=f"worker-{number}") for number in range(8)]
    for worker in workers:
        worker.start()
    until(lambda: len(waiting) == 8)
    with queue._changed:  # the last one lets go of it only when it waits
        looks.clear()
    for number in range(100):
        queue.add_after(f"key-{number}", 3600 + number)
    queue.shut_down()
    for worker in workers:
        worker.join(60)
    assert sum(count for name, count in looks.items() if name.startswith("worker")) <= 4


def test_a_key_is_taken_by_an_idle_worker_when_it_is_due_whoever_waited_for_the_earlier_ones() -> None:
    queue = WorkQueue()
    taken: SimpleQueue[str | None] = SimpleQueue()

    def work() -> None:
        while (key := queue.get()) is not None:
            taken.put(key)
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for number in range(30):
        queue.add_after(f"key-{number}", 0.3 - number / 100)
    queue.add("at once")
    assert {taken.get(timeout=60) for _ in range(31)} == {"at once", *(f"key-{number}" for number in range(30))}
    queue.shut_down()
    for worker in workers:
        worker.join(60)


def test_many_workers_never_have_one_key_at_a_time_and_lose_none() -> None:
    queue = WorkQueue()
    working: Counter[str] = Counter()
    worked: Counter[str] = Counter()
    twice: list[str] = []
    lock = threading.Lock()

    def work() -> None:
        while (key := queue.get()) is not None:
            with lock:
                working[key] += 1
                if working[key] > 1:
                    twice.append(key)
                worked[key] += 1
            with lock:
                working[key] -= 1
            queue.done(key)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for round_ in range(200):
        queue.add(f"key-{round_ % 5}")
    while len(queue):
        threading.Event().wait(0.01)
    queue.shut_down()
    for worker in workers:
        worker.join(60)
    assert twice == []
    assert set(worked) == {f"key-{number}" for number in range(5)}


@given(failures=st.integers(1, 10_000), jitter=st.floats(0, 1))
def test_a_backoff_is_between_half_and_all_of_its_step(failures: int, jitter: float) -> None:
    seconds = backoff_seconds(failures, first=0.5, cap=60, jitter=lambda: jitter)
    step = min(60, 0.5 * 2 ** min(failures - 1, 60))
    assert step / 2 <= seconds <= step


def test_what_changes_goes_before_what_a_cache_was_filled_with(queue: WorkQueue) -> None:
    for key in ("a", "b", "c", "d"):
        queue.add(key)
    queue.hurry("c")
    assert queue.get(0) == "c"
    queue.add("new")
    queue.add("d")  # it waits already, and now it changed
    assert [queue.get(0) for _ in range(5)] == ["new", "d", "a", "b", None]


def test_the_backlog_is_worked_off_however_much_changes(queue: WorkQueue) -> None:
    queue.add("first")
    queue.add("old")
    seen = [queue.get(0)]
    queue.hurry("unknown")
    for number in range(20):
        queue.add(f"new-{number}")
        queue.add(f"other-{number}")
        seen.append(queue.get(0))
    assert "old" in seen
