"""What is known of the card stands in the DPUNetwork's status, and holds up nothing that is enforced."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.network.card import CardConfiguration, CardDifference, CardSetting, CardState, CardStatus
from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.card.configure import CardReport
from provisioner.network.agent.card.worker import CardWorker
from provisioner.network.agent.follow import LOOK_SECONDS, SAY_AGAIN_SECONDS, Agent
from tests.network.agent.specs import BLUE, port, spec, vpc
from tests.network.agent.test_follow import FakeKernel

PATIENCE_SECONDS = 180.0
CARD = CardConfiguration(
    server="r01-u01", host_access="Restricted", settings=(CardSetting(name="DELAY_HOST_OS_INIT", value="1"),)
)
WISH = spec([vpc(BLUE)], [port("10.1.0.3")])
DECLARED = replace(WISH, card=CARD)
WAITS = CardDifference(device="0000:03:00.0", name="HOST_DISABLE_RSHIM", wanted="TRUE", stored="TRUE(1)")


@dataclass
class FakeCard:
    """Says what a test chooses, and keeps what it was told."""

    answer: CardReport | None = None
    wanted: list[CardConfiguration | None] = field(default_factory=list)

    def want(self, wanted: CardConfiguration | None) -> None:
        self.wanted.append(wanted)

    def report(self) -> CardReport | None:
        return self.answer


class Dpu:
    """An agent with a kernel, a card, and a DPUNetwork whose status takes JSON merge patches (RFC 7396)."""

    def __init__(self, card: FakeCard | CardWorker) -> None:
        self.kernel = FakeKernel()
        self.status: dict[str, Any] = {}
        self.writes = 0
        self.now = 1_800_000_000.0
        self.agent = Agent(self.kernel, self._write, lambda words: None, lambda: self.now, card=card)

    def _write(self, change: Mapping[str, Any]) -> None:
        self.writes += 1
        self.status = merged(self.status, change["status"])

    def sees(self, generation: int, wish: DPUNetworkSpec | Mapping[str, Any] | None) -> None:
        if wish is None:
            self.agent.take(None)
            return
        body = to_json(wish) if isinstance(wish, DPUNetworkSpec) else wish
        self.agent.take({"metadata": {"generation": generation}, "spec": body, "status": dict(self.status)})

    def look(self, generation: int, wish: DPUNetworkSpec | Mapping[str, Any] = DECLARED) -> None:
        self.sees(generation, wish)
        self.agent.look()
        self.now += LOOK_SECONDS

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        return {each["type"]: each for each in self.status["conditions"]}


def merged(before: Any, change: Any) -> Any:
    if not isinstance(change, Mapping):
        return change
    base = dict(before) if isinstance(before, Mapping) else {}
    for key, value in change.items():
        base[key] = merged(base.get(key), value)
    return {key: value for key, value in base.items() if value is not None}


@pytest.mark.parametrize(
    ("state", "condition"),
    [("Applied", "True"), ("NeedsPowerCycle", "False"), ("Failed", "False"), ("NotApplicable", "Unknown")],
)
def test_the_state_of_the_card_is_a_condition_in_words_beside_the_kernels(state: CardState, condition: str) -> None:
    dpu = Dpu(FakeCard(CardReport(CardStatus(state=state), "in words")))
    dpu.look(7)
    told = dpu.conditions["CardConfigured"]
    assert (told["status"], told["reason"], told["message"]) == (condition, state, "in words")
    assert dpu.status["card"] == {"state": state, "differences": []}
    assert (dpu.status["observedGeneration"], dpu.conditions["Applied"]["status"]) == (7, "True")


def test_the_card_is_told_what_was_declared_and_that_it_was_taken_back() -> None:
    card = FakeCard()
    dpu = Dpu(card)
    dpu.look(1)
    dpu.look(2, WISH)
    dpu.sees(3, None)
    dpu.agent.look()
    assert card.wanted == [CARD, None, None]


def test_nothing_is_said_of_a_card_that_nobody_declared_anything_of() -> None:
    dpu = Dpu(FakeCard())
    dpu.look(1, WISH)
    assert ("card" in dpu.status, list(dpu.conditions)) == (False, ["Applied"])


def test_what_is_no_longer_different_and_no_longer_declared_leaves_the_status() -> None:
    card = FakeCard(CardReport(CardStatus(state="NeedsPowerCycle", differences=(WAITS,)), "waits"))
    dpu = Dpu(card)
    dpu.look(1)
    assert [each["name"] for each in dpu.status["card"]["differences"]] == ["HOST_DISABLE_RSHIM"]
    card.answer = CardReport(CardStatus(state="Applied"), "done")
    dpu.look(1)
    assert dpu.status["card"] == {"state": "Applied", "differences": []}
    card.answer = None
    dpu.look(2, WISH)
    assert ("card" in dpu.status, list(dpu.conditions)) == (False, ["Applied"])


def test_what_does_not_change_is_not_written_again() -> None:
    dpu = Dpu(FakeCard(CardReport(CardStatus(state="Applied"), "done")))
    dpu.look(1)
    before, since = dpu.writes, dpu.conditions["CardConfigured"]["lastTransitionTime"]
    for _ in range(int(2 * SAY_AGAIN_SECONDS / LOOK_SECONDS)):
        dpu.look(1)
    assert dpu.writes == before
    assert dpu.conditions["CardConfigured"]["lastTransitionTime"] == since


def test_a_spec_that_cannot_be_read_leaves_the_card_as_it_was_told_and_says_so() -> None:
    card = FakeCard(CardReport(CardStatus(state="Applied"), "done"))
    dpu = Dpu(card)
    dpu.look(1)
    dpu.look(2, {"vpcs": "none"})
    assert card.wanted == [CARD]
    assert (dpu.conditions["Applied"]["reason"], dpu.conditions["CardConfigured"]["status"]) == ("NotReadable", "True")


def test_a_tool_that_hangs_does_not_keep_a_generation_from_being_enforced() -> None:
    hangs, ends = threading.Event(), threading.Event()

    def configure(wanted: CardConfiguration) -> CardReport:
        hangs.set()
        ends.wait(PATIENCE_SECONDS)
        return CardReport(CardStatus(state="Applied"), "")

    worker = CardWorker(configure, lambda words: None)
    dpu = Dpu(worker)
    worker.start(dpu.agent.changed.set)
    try:
        dpu.look(1)
        assert hangs.wait(PATIENCE_SECONDS)
        dpu.look(2)
        assert (dpu.status["observedGeneration"], "card" in dpu.status) == (2, False)
        dpu.agent.changed.clear()
        ends.set()
        assert dpu.agent.changed.wait(PATIENCE_SECONDS), "what the card says is told at once"
        dpu.look(2)
        assert dpu.status["card"]["state"] == "Applied"
    finally:
        ends.set()
        worker.stop()
