"""A thread of its own follows the last wish: nobody waits for it, and it tries again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from provisioner.api.network.card import CardConfiguration, CardState, CardStatus
from provisioner.network.agent.card.configure import CardReport
from provisioner.network.agent.card.worker import CardWorker

PATIENCE_SECONDS = 180.0
ONE = CardConfiguration(server="one", host_access="Restricted")
TWO = CardConfiguration(server="two", host_access="Restricted")


def report(state: CardState, message: str = "", *, has_acted: bool = False) -> CardReport:
    return CardReport(CardStatus(state=state), message, has_acted)


class Card:
    """Answers with what a test chooses, the last of it for ever, and writes down what it was asked."""

    def __init__(self, *answers: CardReport | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[CardConfiguration] = []
        self.attempts: list[int] = []
        self.said: list[str] = []
        self.told = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def configure(self, wanted: CardConfiguration) -> CardReport:
        self.asked.append(wanted)
        assert self.go_on.wait(PATIENCE_SECONDS)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(self, attempts: int) -> float:
        self.attempts.append(attempts)
        return 0.001 if len(self.attempts) < 6 else 600.0


@contextmanager
def working(card: Card) -> Iterator[CardWorker]:
    worker = CardWorker(card.configure, card.said.append, card.pause)
    worker.start(card.told.set)
    try:
        yield worker
    finally:
        card.go_on.set()
        worker.stop()


def eventually(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def test_it_asks_nothing_before_something_is_declared_and_nothing_after_it_was_taken_back() -> None:
    card = Card(report("Applied"))
    with working(card) as worker:
        worker.want(None)
        assert (card.asked, worker.report()) == ([], None)
        worker.want(ONE)
        assert eventually(lambda: len(card.attempts) >= 6)
        worker.want(None)
        asked = len(card.asked)
        time.sleep(0.05)
        assert (len(card.asked), worker.report()) == (asked, None)
        worker.want(TWO)
        assert eventually(lambda: len(card.attempts) > 6)
        assert card.asked == [ONE] * asked + [TWO]


def test_a_card_that_hangs_holds_up_neither_a_wish_nor_the_question_how_it_stands() -> None:
    card = Card(report("Applied"))
    card.go_on.clear()
    with working(card) as worker:
        worker.want(ONE)
        assert eventually(lambda: card.asked == [ONE])
        worker.want(TWO)
        assert worker.report() is None
        assert (card.asked, card.attempts) == ([ONE], []), "the card hangs still"


def test_what_was_found_for_a_former_wish_is_not_said_of_the_present_one() -> None:
    card = Card(report("Applied", "of one"), report("NeedsPowerCycle", "of two"))
    card.go_on.clear()
    with working(card) as worker:
        worker.want(ONE)
        assert eventually(lambda: card.asked == [ONE])
        worker.want(TWO)
        card.go_on.set()
        assert eventually(lambda: worker.report() is not None)
        assert worker.report() == report("NeedsPowerCycle", "of two")
        assert card.said == ["card: NeedsPowerCycle: of two"]


def test_it_tries_again_after_growing_pauses_until_nothing_fails_and_nothing_had_to_be_told() -> None:
    failed = report("Failed", "why")
    card = Card(failed, failed, report("NeedsPowerCycle", has_acted=True), report("NeedsPowerCycle"))
    with working(card) as worker:
        worker.want(ONE)
        assert eventually(lambda: len(card.attempts) >= 6)
    assert card.attempts[:6] == [1, 2, 3, 0, 0, 0]
    assert card.said == ["card: Failed: why", "card: NeedsPowerCycle: "]


def test_another_wish_is_tried_at_once_and_as_if_nothing_had_failed_before() -> None:
    card = Card(report("Failed"))
    with working(card) as worker:
        worker.want(ONE)
        assert eventually(lambda: len(card.attempts) >= 6)  # it waits for 10 min now
        worker.want(TWO)
        assert eventually(lambda: card.asked[-1] == TWO and len(card.attempts) >= 7)
    assert card.attempts[6] == 1


def test_a_fault_of_the_agent_itself_is_told_and_tried_again() -> None:
    card = Card(KeyError("what"), report("Applied"))
    with working(card) as worker:
        worker.want(ONE)
        assert eventually(lambda: len(card.attempts) >= 2)
    assert card.said[0].startswith("card: Failed: the agent could not look at the card (KeyError: 'what')")
    assert card.attempts[:2] == [1, 0]
