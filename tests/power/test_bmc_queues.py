"""A server whose BMC does not answer changes queues, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from provisioner.power.bmc.power_controller import BmcUnreachable
from provisioner.power.bmc_queues import BmcQueues, retry_seconds

BOUND_SECONDS = 180


class FakeReconcile:
    """A reconcile that fails for the servers in `dead`, and notes in which queue each was looked at."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.looks: list[tuple[str, str]] = []
        self.changed = threading.Condition()

    def __call__(self, key: str) -> float | None:
        with self.changed:
            self.looks.append((key, threading.current_thread().name.rpartition("-")[0]))
            self.changed.notify_all()
        if key in self.dead:
            raise BmcUnreachable("away")
        return None

    def wait_for(self, check: Callable[[list[tuple[str, str]]], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: check(self.looks), BOUND_SECONDS)


@pytest.fixture
def bmcs() -> FakeReconcile:
    return FakeReconcile()


@pytest.fixture
def ended() -> list[str]:
    return []


@pytest.fixture
def queues(bmcs: FakeReconcile, ended: list[str]) -> Iterator[BmcQueues]:
    made = BmcQueues(
        bmcs, workers=1, unreachable_workers=1, spread=lambda seconds: 0.01, on_end=lambda: ended.append("end")
    )
    stop = threading.Event()
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in made.controllers]
    for thread in threads:
        thread.start()
    yield made
    stop.set()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert ended == ["end"], "once, and not while the other queue may be speaking to a BMC"


def test_a_dead_bmc_is_left_to_the_other_queue_until_it_answers(queues: BmcQueues, bmcs: FakeReconcile) -> None:
    bmcs.dead.add("a")
    queues.add("a")
    bmcs.wait_for(lambda looks: looks[:3] == [("a", "power")] + [("a", "power-unreachable")] * 2)
    bmcs.dead.clear()
    # Wait until it was found alive, which is when it is asked for in the first queue again.
    for _ in range(BOUND_SECONDS * 100):
        queues.add("a")
        if bmcs.looks[-1] == ("a", "power"):
            break
        threading.Event().wait(0.01)
    assert bmcs.looks[-1] == ("a", "power")


def test_a_change_of_a_dead_server_does_not_enter_the_queue_of_the_living(
    queues: BmcQueues, bmcs: FakeReconcile
) -> None:
    bmcs.dead.add("a")
    queues.add("a")
    bmcs.wait_for(lambda looks: len(looks) >= 2)
    for _ in range(5):
        queues.add("a")
    queues.add("b")
    bmcs.wait_for(lambda looks: ("b", "power") in looks)
    assert [look for look in bmcs.looks if look[1] == "power"] == [("a", "power"), ("b", "power")]


def test_a_dead_bmc_is_tried_more_and_more_rarely_but_at_least_every_minute() -> None:
    assert [retry_seconds(failures) for failures in (1, 2, 3, 4, 5, 1000)] == [5, 10, 20, 40, 60, 60]


def test_connections_are_closed_only_when_neither_queue_is_speaking_to_a_bmc() -> None:
    speaking, hang_up, said = threading.Event(), threading.Event(), list[str]()

    def speak(key: str) -> None:
        speaking.set()
        assert hang_up.wait(BOUND_SECONDS)
        said.append("spoke")

    queues = BmcQueues(speak, workers=1, unreachable_workers=1, spread=float, on_end=lambda: said.append("closed"))
    stop = threading.Event()
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in queues.controllers]
    for thread in threads:
        thread.start()
    queues.add("a")
    assert speaking.wait(BOUND_SECONDS)
    stop.set()
    threads[1].join(BOUND_SECONDS)
    assert (threads[1].is_alive(), said) == (False, [])
    hang_up.set()
    threads[0].join(BOUND_SECONDS)
    assert said == ["spoke", "closed"]


def test_a_bmc_found_alive_is_spoken_to_by_the_queue_of_the_living_alone(
    queues: BmcQueues, bmcs: FakeReconcile
) -> None:
    """A change of the server that came while it was looked at brings its key back to the queue of the dead."""
    queues.controllers[1].queue.add("a")
    bmcs.wait_for(lambda looks: bool(looks))
    assert bmcs.looks == [("a", "power")]
