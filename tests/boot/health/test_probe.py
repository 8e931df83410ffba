"""Looks that may hang or fail, and checks of what stands."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from provisioner.boot.dhcp.workers.supervisor import WorkerStates
from provisioner.boot.health.probe import FAILURES, LATE_SECONDS, Probe
from provisioner.boot.host.health import (
    AWAY_SECONDS,
    BEHIND_SECONDS,
    HUNG_SECONDS,
    DhcpCheck,
    inventory_check,
    scripts_check,
    threads_check,
    watches_check,
)


@dataclass
class Looked:
    """A probe, what its looks see, and its clock."""

    now: float = 0.0
    saw: str | Exception = "fine"
    probe: Probe = field(init=False)

    def __post_init__(self) -> None:
        self.probe = Probe("it", self.attempt, lambda: self.now)

    def attempt(self) -> str:
        if isinstance(self.saw, Exception):
            raise self.saw
        return self.saw

    def look(self, saw: str | Exception) -> bool:
        self.saw = saw
        self.probe.attempt()
        return self.probe.verdict().is_well


def test_before_the_first_look_and_while_all_fail_it_is_not_well() -> None:
    looked = Looked()
    assert not looked.probe.verdict().is_well
    assert not looked.look(OSError("refused"))
    assert looked.probe.verdict().words == "refused"
    assert looked.look("fine")


def test_one_failure_is_forgiven_two_are_not_and_one_success_mends_it() -> None:
    looked = Looked()
    looked.look("fine")
    assert [looked.look(OSError("no")) for _ in range(FAILURES)] == [True] * (FAILURES - 1) + [False]
    assert looked.look("fine")


def test_a_look_that_hangs_is_a_failure_although_nothing_says_so() -> None:
    looked = Looked()
    looked.look("fine")
    looked.now = LATE_SECONDS + 1
    assert not looked.probe.verdict().is_well


def test_a_fault_of_the_probe_is_no_word_of_what_it_looks_at() -> None:
    looked = Looked()
    for _ in range(FAILURES):
        looked.look(RuntimeError("secret"))
    assert looked.probe.verdict().words == "the probe itself failed: RuntimeError"


def test_a_worker_that_is_away_for_a_moment_is_forgiven_if_all_were_there_once() -> None:
    states = [
        WorkerStates(2, 1, 0, 0.5), WorkerStates(2, 2, 0, 0.0), WorkerStates(2, 1, 1, 0.5),
        WorkerStates(2, 1, 9, AWAY_SECONDS + 1), WorkerStates(2, 2, 9, 0.0),
    ]  # fmt: skip
    check = DhcpCheck(iter(states).__next__)
    assert [check.look().is_well for _ in states] == [False, True, True, False, True]


@dataclass
class FakeCache:
    kind: str = "Server"
    has_synced: bool = True
    is_dead: bool = False
    heard: float = 0.0
    turned: float = 0.0

    def heard_seconds(self) -> float:
        return self.heard

    def turned_seconds(self) -> float:
        return self.turned


def test_an_inventory_that_is_old_is_ready_and_alive_one_that_was_never_known_is_not() -> None:
    old = FakeCache(heard=86_400.0)
    assert inventory_check([old]).look().is_well
    assert watches_check([old]).look().is_well
    verdict = inventory_check([old, FakeCache("Rack", has_synced=False)]).look()
    assert (verdict.is_well, verdict.words) == (False, "not known yet: Rack")


@pytest.mark.parametrize("cache", [FakeCache(is_dead=True), FakeCache(turned=HUNG_SECONDS + 1)])
def test_a_watch_that_ended_or_hangs_is_no_life(cache: FakeCache) -> None:
    assert not watches_check([FakeCache(), cache]).look().is_well


@dataclass
class FakeRenderer:
    ready: bool = True
    scripts: int = 7
    waiting: tuple[int, float] = (0, 0.0)

    def pending(self) -> tuple[int, float]:
        return self.waiting


@pytest.mark.parametrize(
    ("renderer", "is_well"),
    [
        (FakeRenderer(), True), (FakeRenderer(ready=False), False), (FakeRenderer(waiting=(5, 1.0)), True),
        (FakeRenderer(waiting=(5, BEHIND_SECONDS + 1)), False),
    ],
)  # fmt: skip
def test_scripts_that_stay_behind_the_inventory_are_not_served_as_if_they_were_right(
    renderer: FakeRenderer, is_well: bool
) -> None:
    assert scripts_check(renderer).look().is_well is is_well


def test_a_thread_that_ended_is_named() -> None:
    stop = threading.Event()
    lives, ended = threading.Thread(target=stop.wait, name="lives"), threading.Thread(target=int, name="ended")
    for thread in (lives, ended):
        thread.start()
    ended.join()
    try:
        assert threads_check(lambda: [lives]).look().is_well
        assert threads_check(lambda: [lives, ended]).look().words == "ended: ended"
    finally:
        stop.set()
        lives.join()
