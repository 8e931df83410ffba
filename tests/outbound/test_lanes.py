"""Work that waits for a backend is done in that backend's own thread, one after the other, and nowhere else."""

from __future__ import annotations

import threading

import pytest

from provisioner.outbound.bulkhead import NoRoom
from provisioner.outbound.lanes import Lanes, NeedsLane

PATIENCE = 180
HUNG, OTHER = "http://hung", "http://other"


def never(_: str) -> None:
    return None


def test_who_is_not_in_the_lane_is_sent_there() -> None:
    lanes, done = Lanes("slurmrestd", never), threading.Event()
    with pytest.raises(NeedsLane) as needed:
        lanes.enter(HUNG)

    def work() -> None:
        lanes.enter(HUNG)
        with pytest.raises(NeedsLane):
            lanes.enter(OTHER)
        done.set()

    needed.value.submit(work)
    assert done.wait(PATIENCE)


def test_one_lane_that_hangs_holds_no_other_up() -> None:
    lanes, hangs, released, done = Lanes("slurmrestd", never), *(threading.Event() for _ in range(3))

    def hang() -> None:
        hangs.set()
        released.wait(PATIENCE)

    behind = threading.Event()
    lanes.submit(HUNG, hang)
    assert hangs.wait(PATIENCE)
    lanes.submit(HUNG, behind.set)
    lanes.submit(OTHER, done.set)
    assert done.wait(PATIENCE)
    assert not behind.is_set()
    released.set()
    assert behind.wait(PATIENCE)


def test_a_lane_without_work_has_no_thread_and_work_that_fails_ends_none() -> None:
    lanes, done = Lanes("slurmrestd", never), threading.Event()
    released = threading.Event()

    def fail() -> None:
        released.wait(PATIENCE)
        raise ZeroDivisionError

    lanes.submit(HUNG, fail)
    lanes.submit(HUNG, done.set)
    assert len(lanes._queues) == 1
    released.set()
    assert done.wait(PATIENCE)
    thread = next((t for t in threading.enumerate() if t.name == f"slurmrestd {HUNG}"), None)
    if thread is not None:
        thread.join(PATIENCE)
    assert len(lanes._queues) == 0


def test_an_idle_lane_looks_ahead_as_long_as_it_is_told_to() -> None:
    looked: list[str] = []
    over = threading.Event()

    def ahead(key: str) -> float | None:
        looked.append(key)
        if len(looked) < 4:
            return 0.01
        over.set()
        return None

    lanes = Lanes("slurmrestd", ahead)
    lanes.submit(HUNG, lambda: None)
    assert over.wait(PATIENCE)
    assert looked == [HUNG] * 4


def test_the_number_of_lanes_is_bounded() -> None:
    lanes, released = Lanes("slurmrestd", never, max_threads=2), threading.Event()
    for key in (HUNG, OTHER):
        lanes.submit(key, lambda: released.wait(PATIENCE) and None)
    with pytest.raises(NoRoom, match="slurmrestd at http://third is not asked: 2 others are"):
        lanes.submit("http://third", lambda: None)
    released.set()


def test_a_lane_that_got_no_thread_is_tried_again_with_the_next_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lanes, done = Lanes("slurmrestd", never), threading.Event()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(NoRoom, match="slurmrestd at http://hung is not asked: can't start new thread"):
            lanes.submit(HUNG, done.set)
    assert len(lanes._queues) == 0
    lanes.submit(HUNG, done.set)
    assert done.wait(PATIENCE)
