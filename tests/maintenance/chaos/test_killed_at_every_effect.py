"""The executor is killed at every single thing that it does, and at each of these something else goes wrong, too.

`make chaos` (CHAOS=long) plays every combination; otherwise every effect is killed after once for each scenario, and
the other troubles take turns. A failure shows the whole history.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from tests.maintenance.chaos.injections import INJECTIONS, Injection
from tests.maintenance.chaos.scenarios import SCENARIOS, Scenario, run

LONG: Final = os.environ.get("CHAOS") == "long"
TURNS: Final = 1 if LONG else 12
"""Of so many effects, one gets each of the troubles."""

BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
pytestmark = pytest.mark.timeout(6 * 3600 if LONG else 300)


@cache
def effects_of(name: str) -> tuple[str, ...]:
    """What the executor does in a scenario in which nothing goes wrong."""
    return tuple(effect.words for effect in run(BY_NAME[name]).meter.effects)


def turns(scenario: Scenario, injection: Injection) -> Iterator[tuple[int, str, bool]]:
    """At which effect, on which side of it, and whether the executor lives on."""
    row, column = SCENARIOS.index(scenario), INJECTIONS.index(injection)
    combination = row * 5 + column * 7
    for number in range(1, len(effects_of(scenario.name)) + 1):
        for moment in ("before", "after"):
            for live in (False, True):
                combination += 1
                if live and injection.fault is not None and moment != ("after" if injection.answer_lost else "before"):
                    continue  # a fault is on one side of what it befalls
                plain = injection is INJECTIONS[0]
                if (plain and live) or (combination % (4 * TURNS) >= 4 and not (plain and moment == "after")):
                    continue
                yield number, moment, live


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_undisturbed_it_ends_as_asked(scenario: Scenario) -> None:
    world = run(scenario)
    phases = {body["status"]["phase"] for body in world.maintenances()}
    assert phases == {"Completed"}, "\n".join(world.story.lines)
    assert {machine.boots for machine in world.machines.values()} == {scenario.boots}


@pytest.mark.parametrize("injection", INJECTIONS, ids=lambda injection: injection.name)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_killed_at_every_effect(scenario: Scenario, injection: Injection) -> None:
    for number, moment, live in turns(scenario, injection):
        run(scenario, strike=(number, moment, injection), live=live)
