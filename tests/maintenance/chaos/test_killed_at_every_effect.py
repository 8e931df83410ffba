"""The executor is killed at every single thing that it does, and at each of these something else goes wrong, too.

`make chaos` (CHAOS=long) plays every combination. Otherwise every effect is killed after once for each scenario, and
each of the other troubles strikes once in some scenarios: the seed of the run chooses which, and where (replay.py). A
failure shows the whole history.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from tests.maintenance.chaos import replay
from tests.maintenance.chaos.injections import INJECTIONS, Injection
from tests.maintenance.chaos.replay import LONG
from tests.maintenance.chaos.scenarios import SCENARIOS, Scenario, run

SIDES: Final = ("before", "after")

PLAYED: Final = 5
"""In how many scenarios each trouble strikes in a usual run."""
BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
pytestmark = pytest.mark.timeout(6 * 3600 if LONG else 900)


@cache
def effects_of(name: str) -> tuple[str, ...]:
    """What the executor does in a scenario in which nothing goes wrong."""
    return tuple(effect.words for effect in run(BY_NAME[name]).meter.effects)


Turn = tuple[int, str, bool]
"""At which effect, on which side of it, and whether the executor lives on."""


def turns(scenario: Scenario, injection: Injection) -> Iterator[Turn]:
    effects = effects_of(scenario.name)
    if LONG:
        yield from every_turn(len(effects), injection)
    elif injection is INJECTIONS[0]:
        for number in range(1, len(effects) + 1):
            if number == 1 or effects[number - 1] != effects[number - 2]:  # not the same once more, such as a warning
                yield number, "after", False
    else:
        chance = replay.rng(scenario.name, injection.name)
        live, side = chance.random() < 0.5, chance.choice(SIDES)
        yield chance.randint(1, len(effects)), (side_of(injection) or side) if live else side, live


def every_turn(effects: int, injection: Injection) -> Iterator[Turn]:
    for number in range(1, effects + 1):
        for side in SIDES:
            yield number, side, False
            if injection is not INJECTIONS[0] and side_of(injection) in (None, side):
                yield number, side, True


def side_of(injection: Injection) -> str | None:
    """A fault is on one side of the effect that it befalls."""
    if injection.fault is None:
        return None
    return "after" if injection.answer_lost else "before"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_undisturbed_it_ends_as_asked(scenario: Scenario) -> None:
    world = run(scenario)
    phases = {body["status"]["phase"] for body in world.maintenances()}
    assert phases == {"Completed"}, "\n".join(world.story.lines)
    assert {machine.boots for machine in world.machines.values()} == {scenario.boots}


def chosen() -> Iterator[tuple[Scenario, Injection]]:
    """Every scenario without a trouble but the crash, and each trouble in some scenarios; or all with all."""
    for injection in INJECTIONS:
        is_whole = LONG or injection is INJECTIONS[0]
        for scenario in SCENARIOS if is_whole else replay.rng(injection.name).sample(SCENARIOS, PLAYED):
            yield scenario, injection


@pytest.mark.parametrize(("scenario", "injection"), [pytest.param(s, i, id=f"{s.name}-{i.name}") for s, i in chosen()])
def test_killed_at_every_effect(scenario: Scenario, injection: Injection) -> None:
    for number, moment, live in turns(scenario, injection):
        run(scenario, strike=(number, moment, injection), live=live)
