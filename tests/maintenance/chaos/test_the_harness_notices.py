"""A harness that finds nothing proves nothing: each fault put into the executor here must be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.maintenance.chaos.injections import INJECTIONS
from tests.maintenance.chaos.scenarios import SCENARIOS, run
from tests.maintenance.chaos.story import InvariantBroken

SCENARIO = {scenario.name: scenario for scenario in SCENARIOS}
INJECTION = {injection.name: injection for injection in INJECTIONS}
Break = Callable[[pytest.MonkeyPatch], None]


PHASES = "provisioner.maintenance.phases"


def _replace(monkeypatch: pytest.MonkeyPatch, name: str, *modules: str, by: Callable[..., Any]) -> None:
    for module in modules:
        monkeypatch.setattr(f"{PHASES}.{module}.{name}", by)


def _sees_no_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(
        monkeypatch,
        "protected_jobs",
        "blocking",
        "claiming",
        "rebooting",
        by=lambda facts, now: (),
    )
    _replace(monkeypatch, "may_interrupt", "blocking", "waiting", "claiming", by=lambda facts, now: True)


def _never_undoes(monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(monkeypatch, "_undo", "release", by=lambda facts, verdict: None)
    monkeypatch.setattr("provisioner.maintenance.controller.find_leftover", lambda node, **_: None)


def _clears_all_taints(monkeypatch: pytest.MonkeyPatch) -> None:
    def clear(self: Any, node: Any, value: str | None) -> None:
        ours = {"key": "provisioner.dev/maintenance", "value": value, "effect": "NoSchedule"}
        self._patch_node(node, {"spec": {"taints": [ours] if value is not None else None}})

    monkeypatch.setattr("provisioner.maintenance.effects.Effects.set_taint", clear)


def _ignores_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.maintenance.phases.budget.Budget.has_room", property(lambda self: True))


def _never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.maintenance.decide.find_end", lambda facts: None)


def _believes_every_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the boot before for the new one: done at once, without a boot."""
    _replace(monkeypatch, "new_boot", "rebooting", by=lambda facts: facts.maintenance.status.boot_id_before)
    _replace(monkeypatch, "_doubt", "verifying", by=lambda facts, attempt: None)


@pytest.mark.parametrize(
    ("fault", "scenario", "words"),
    [
        (_sees_no_jobs, "reboot when idle", "was interrupted"),
        (_never_undoes, "drain", "is still tainted by us"),
        (_clears_all_taints, "drain", "taint on s1 was taken off"),
        (_ignores_the_budget, "two servers, budget one", "more than 1"),
        (_never_ends, "drain", "did not end"),
        (_believes_every_boot, "power cycle", "never booted"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else None,
)
def test_a_broken_executor_is_found(monkeypatch: pytest.MonkeyPatch, fault: Break, scenario: str, words: str) -> None:
    fault(monkeypatch)
    with pytest.raises(InvariantBroken, match=words):
        run(SCENARIO[scenario], strike=(3, "before", INJECTION["cordoned by an administrator"]), live=True)


def test_the_story_tells_what_led_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    _never_undoes(monkeypatch)
    with pytest.raises(InvariantBroken) as caught:
        run(SCENARIO["drain"], strike=(3, "after", INJECTION["409"]))
    story = str(caught.value)
    for words in ("in: drain / killed after effect 3 / 409", "CRASHES", "executor-2", "phase Drained", "BROKEN"):
        assert words in story
