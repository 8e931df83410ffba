"""A server whose BMC does not answer, or costs more than its share, changes queues, and comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from provisioner.power.bmc.power_controller import BmcUnreachable
from provisioner.power.bmc_queues import BmcQueues
from provisioner.power.standing import LOOK_SECONDS, QueueName, recorded, retry_seconds
from provisioner.power.visit import LookOverdue, Visit

BOUND_SECONDS = 180
LONG_SECONDS = 3600.0
ONE_WORKER_EACH: dict[QueueName, int] = {"New": 1, "Prompt": 1, "Slow": 1, "Unreachable": 1}


class FakeReconcile:
    """A reconcile that fails for the servers in `dead`, and notes in which queue each was looked at."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.looks: list[tuple[str, str]] = []
        self.changed = threading.Condition()

    def __call__(self, key: str, visit: Visit) -> float | None:
        with self.changed:
            self.looks.append((key, threading.current_thread().name.rpartition("-")[0]))
            self.changed.notify_all()
        if key in self.dead:
            raise BmcUnreachable("away")
        visit.answered = True
        return LONG_SECONDS

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
    made = BmcQueues(bmcs, workers=ONE_WORKER_EACH, spread=lambda seconds: 0.01, on_end=lambda: ended.append("end"))
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
    bmcs.wait_for(lambda looks: looks[:3] == [("a", "power-new")] + [("a", "power-unreachable")] * 2)
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
    bmcs.wait_for(lambda looks: ("b", "power-new") in looks)
    queues.add("b")
    bmcs.wait_for(lambda looks: ("b", "power") in looks)
    living = [look for look in bmcs.looks if look[1] != "power-unreachable"]
    assert living == [("a", "power-new"), ("b", "power-new"), ("b", "power")]


def test_a_dead_bmc_is_tried_more_and_more_rarely_but_at_least_every_minute() -> None:
    assert [retry_seconds(failures) for failures in (1, 2, 3, 4, 5, 1000)] == [5, 10, 20, 40, 60, 60]


def test_connections_are_closed_only_when_neither_queue_is_speaking_to_a_bmc() -> None:
    speaking, hang_up, said = threading.Event(), threading.Event(), list[str]()

    def speak(key: str, visit: Visit) -> None:
        speaking.set()
        assert hang_up.wait(BOUND_SECONDS)
        said.append("spoke")

    queues = BmcQueues(speak, workers=ONE_WORKER_EACH, spread=float, on_end=lambda: said.append("closed"))
    stop = threading.Event()
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in queues.controllers]
    for thread in threads:
        thread.start()
    queues.add("a")
    assert speaking.wait(BOUND_SECONDS)
    stop.set()
    for thread in threads[1:]:
        thread.join(BOUND_SECONDS)
    assert ([thread.is_alive() for thread in threads[1:]], said) == ([False] * 3, [])
    hang_up.set()
    threads[0].join(BOUND_SECONDS)
    assert said == ["spoke", "closed"]


def test_a_bmc_is_spoken_to_by_the_queue_that_it_is_in_alone(queues: BmcQueues, bmcs: FakeReconcile) -> None:
    """A change of the server that came while it was looked at brings its key back to the queue that it has left."""
    queues.add("a")
    bmcs.wait_for(lambda looks: bool(looks))
    for controller in queues.controllers:
        controller.queue.add("a")
    bmcs.wait_for(lambda looks: len(looks) >= 2)
    assert set(bmcs.looks[1:]) == {("a", "power")}


def test_who_was_recorded_as_unreachable_or_slow_begins_in_that_queue(queues: BmcQueues, bmcs: FakeReconcile) -> None:
    """A new leader does not find a thousand dead BMCs out among the living."""
    reasons = {"dead": "BMCUnreachable", "cut": "BMCCutOff", "slow": "SlowBMC", "well": "On"}
    for name, reason in reasons.items():
        queues.add(name, recorded({"status": {"conditions": [{"type": "PoweredOn", "reason": reason}]}}))
    queues.add("new", recorded({}))
    bmcs.wait_for(lambda looks: len({key for key, _ in looks}) == 5)
    assert dict(reversed(bmcs.looks)) == {
        "dead": "power-unreachable",
        "cut": "power-unreachable",
        "slow": "power-slow",
        "well": "power-new",
        "new": "power-new",
    }


def test_a_look_that_takes_too_long_for_its_queue_is_made_in_another_at_once(ended: list[str]) -> None:
    looked = list[tuple[str, float | None]]()
    done = threading.Event()

    def look(key: str, visit: Visit) -> float:
        looked.append((threading.current_thread().name.rpartition("-")[0], visit._look_seconds))
        if visit._look_seconds == LOOK_SECONDS["Prompt"]:
            raise LookOverdue
        visit.answered = True
        if len(looked) == 3:
            done.set()
            return LONG_SECONDS
        return 0.0

    queues = BmcQueues(look, workers=ONE_WORKER_EACH, spread=float, on_end=lambda: ended.append("end"))
    stop = threading.Event()
    threads = [threading.Thread(target=controller.run, args=(stop,)) for controller in queues.controllers]
    for thread in threads:
        thread.start()
    queues.add("a")
    assert done.wait(BOUND_SECONDS)
    stop.set()
    for thread in threads:
        thread.join(BOUND_SECONDS)
    assert looked == [("power-new", 10.0), ("power", 3.0), ("power-slow", None)]


def test_of_a_server_that_is_gone_nothing_is_kept(bmcs: FakeReconcile) -> None:
    queues = BmcQueues(lambda key, visit: None, workers=ONE_WORKER_EACH, spread=float, on_end=lambda: None)
    queues.add("a")
    assert [standing.queue for standing in queues._standings.values()] == ["New"]
    queues.controllers[0]._reconcile("a")
    assert queues._standings == {}
