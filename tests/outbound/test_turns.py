"""Long work in turns: how much of the time it takes, and who comes first."""

from __future__ import annotations

import threading

import pytest

from provisioner.outbound.turns import REST_TIMES, TURN_SECONDS, Turn, Turns

PATIENCE = 180


class Desk:
    """A clock that a test sets, and how long was rested."""

    def __init__(self) -> None:
        self.seconds, self.rested = 0.0, list[float]()
        self.turns = Turns()

    def turn(self, **more: object) -> Turn:
        return Turn(turns=self.turns, clock=lambda: self.seconds, rest=self.rested.append, **more)  # type: ignore[arg-type]


def test_whoever_works_long_rests_twice_as_long() -> None:
    desk = Desk()
    with desk.turn() as turn:
        for _ in range(1000):
            desk.seconds += TURN_SECONDS / 3
            turn.step()
    assert sum(desk.rested) == pytest.approx(desk.seconds * REST_TIMES, abs=TURN_SECONDS * REST_TIMES)
    assert max(desk.rested) < 2 * TURN_SECONDS * REST_TIMES


def test_what_is_soon_done_does_not_rest() -> None:
    desk = Desk()
    with desk.turn() as turn:
        desk.seconds += TURN_SECONDS / 2
        turn.step()
    assert desk.rested == []


def test_who_waits_for_more_between_turns_rests_all_the_same() -> None:
    desk, turn = Desk(), None
    turn = desk.turn()
    for _ in range(10):
        with turn:
            desk.seconds += TURN_SECONDS / 2
    assert sum(desk.rested) == pytest.approx(desk.seconds * REST_TIMES)


def test_work_whose_call_is_over_ends() -> None:
    class Over(Exception):
        pass

    def over() -> None:
        raise Over

    desk = Desk()
    with desk.turn(alive=over) as turn:
        desk.seconds += TURN_SECONDS
        with pytest.raises(Over):
            turn.step()
    with desk.turn():
        pass  # and the next one works


def test_who_has_worked_least_comes_first() -> None:
    turns, came = Turns(), list[float]()

    def come(worked: float) -> None:
        turns.take(worked)
        came.append(worked)
        turns.leave()

    turns.take(0.0)
    threads = [threading.Thread(target=come, args=(worked,)) for worked in (3.0, 1.0, 2.0)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        while len(turns._waiting) < count:
            thread.join(0.001)
    assert came == [], "one at a time"
    turns.leave()
    for thread in threads:
        thread.join(PATIENCE)
    assert came == [1.0, 2.0, 3.0]
