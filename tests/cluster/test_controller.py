"""What becomes of a key, whatever its reconcile does."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest

from provisioner.api.machinery.errors import Conflict, NeedsHuman, Retryable
from provisioner.cluster.controller import NEEDS_HUMAN_RETRY_SECONDS, RESYNC_SECONDS, Controller, requeue_after
from provisioner.cluster.work_queue import FIRST_RETRY_SECONDS, WorkQueue
from provisioner.outbound.lanes import Lanes

GENEROUS_SECONDS = 180


class RecordingQueue(WorkQueue):
    """A real queue that also notes for how long keys were put off, and does not wait for it."""

    def __init__(self) -> None:
        super().__init__(jitter=lambda: 1.0)
        self.put_off: list[float] = []

    def add_after(self, key: str, seconds: float) -> None:
        self.put_off.append(seconds)
        super().add_after(key, 0)


class Script:
    """A reconcile that does one thing after the other, then succeeds."""

    def __init__(self, *steps: Callable[[], float | None]) -> None:
        self._steps = list(steps)
        self.calls = 0
        self.finished = threading.Event()

    def __call__(self, key: str) -> float | None:
        self.calls += 1
        if self._steps:
            return self._steps.pop(0)()
        self.finished.set()
        return None


def raising(error: Exception) -> Callable[[], float | None]:
    def step() -> float | None:
        raise error

    return step


@pytest.fixture
def queue() -> Iterator[RecordingQueue]:
    queue = RecordingQueue()
    yield queue
    queue.shut_down()


def run(queue: WorkQueue, script: Script) -> None:
    stop = threading.Event()
    controller = Controller("test", script, queue=queue)
    controller.queue.add("a")
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    assert script.finished.wait(GENEROUS_SECONDS)
    stop.set()
    thread.join(GENEROUS_SECONDS)
    assert not thread.is_alive()


def test_retryable_comes_back_after_its_backoff_and_what_the_server_asked(queue: RecordingQueue) -> None:
    run(queue, Script(raising(Retryable("away", after_seconds=0)), raising(Retryable("busy", after_seconds=7))))
    assert queue.put_off == [FIRST_RETRY_SECONDS, 7]


def test_a_conflict_comes_back_soon(queue: RecordingQueue) -> None:
    run(queue, Script(raising(Conflict("stale", after_seconds=0.1))))
    assert queue.put_off == [FIRST_RETRY_SECONDS]


def test_what_needs_a_person_comes_back_slowly(queue: RecordingQueue) -> None:
    run(queue, Script(raising(NeedsHuman("no pool", hint="create it"))))
    assert queue.put_off == [NEEDS_HUMAN_RETRY_SECONDS]


def test_a_bug_does_not_kill_the_worker(queue: RecordingQueue) -> None:
    run(queue, Script(raising(ZeroDivisionError()), raising(ZeroDivisionError())))
    assert queue.put_off == [FIRST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2]


def test_a_returned_number_is_when_to_look_again_and_clears_the_failures(queue: RecordingQueue) -> None:
    run(queue, Script(raising(ZeroDivisionError()), lambda: 30.0, raising(ZeroDivisionError())))
    assert queue.put_off == [FIRST_RETRY_SECONDS, 30.0, FIRST_RETRY_SECONDS]


def test_a_requeue_is_never_later_than_a_resync() -> None:
    rng = random.Random(0)
    assert requeue_after(30, rng) == 30
    for sooner_seconds in (None, 2 * RESYNC_SECONDS):
        assert RESYNC_SECONDS <= requeue_after(sooner_seconds, rng) <= 1.2 * RESYNC_SECONDS


def test_stopping_waits_for_the_reconcile_that_is_under_way() -> None:
    stop, entered, release = threading.Event(), threading.Event(), threading.Event()
    ended = []

    def slow(key: str) -> None:
        entered.set()
        release.wait(GENEROUS_SECONDS)
        ended.append(key)

    controller = Controller("test", slow)
    controller.queue.add("a")
    controller.queue.add("b")
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    assert entered.wait(GENEROUS_SECONDS)
    stop.set()
    thread.join(0.2)
    assert thread.is_alive()
    release.set()
    thread.join(GENEROUS_SECONDS)
    assert ended == ["a"], "what was not begun is not begun any more"


class Waiting:
    """A reconcile that waits for a backend, in its lane: `hung` for as long as the test says, the others not at all."""

    def __init__(self) -> None:
        self.lanes = Lanes("backend", lambda _: None)
        self.entered, self.released, self.done = threading.Event(), threading.Event(), threading.Event()
        self.began: list[str] = []

    def __call__(self, key: str) -> None:
        if key.startswith("hung"):
            self.lanes.enter("hung")
            self.began.append(key)
            self.entered.set()
            self.released.wait(GENEROUS_SECONDS)
        else:
            self.done.set()


def start(reconcile: Waiting, queue: WorkQueue) -> tuple[threading.Event, threading.Thread]:
    stop = threading.Event()
    thread = threading.Thread(target=Controller("test", reconcile, workers=1, queue=queue).run, args=(stop,))
    thread.start()
    return stop, thread


def test_what_waits_for_a_backend_takes_no_worker_and_is_done_by_one_at_a_time() -> None:
    waiting, queue = Waiting(), WorkQueue()
    stop, thread = start(waiting, queue)
    for number in range(10):
        queue.add(f"hung-{number}")
    assert waiting.entered.wait(GENEROUS_SECONDS)
    queue.add(waiting.began[0])
    queue.add("other")
    assert waiting.done.wait(GENEROUS_SECONDS), "the only worker waits for a backend that hangs"
    assert len(waiting.began) == 1, "a key that is in its lane, or one behind it, was worked on by somebody else"
    waiting.released.set()
    while len(waiting.began) < 11:
        assert thread.is_alive()
        threading.Event().wait(0.01)
    assert sorted(waiting.began) == sorted([waiting.began[0], *(f"hung-{number}" for number in range(10))])
    stop.set()
    thread.join(GENEROUS_SECONDS)


def test_stopping_waits_for_the_lane_that_is_under_way_and_begins_no_other() -> None:
    waiting, queue = Waiting(), WorkQueue()
    stop, thread = start(waiting, queue)
    for key in ("hung-1", "hung-2"):
        queue.add(key)
    assert waiting.entered.wait(GENEROUS_SECONDS)
    stop.set()
    thread.join(0.2)
    assert thread.is_alive()
    waiting.released.set()
    thread.join(GENEROUS_SECONDS)
    assert not thread.is_alive()
    assert len(waiting.began) == 1
