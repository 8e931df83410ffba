"""The leader is killed at every single thing that it does for a rollout, and at each something else goes wrong, too.

`make chaos` (CHAOS=long) plays every combination; otherwise the seed of the run chooses where each trouble strikes, and
in which rollout. A failure shows the whole history.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from tests.maintenance.chaos import replay
from tests.maintenance.chaos.injections import Injection
from tests.maintenance.chaos.replay import LONG
from tests.maintenance.chaos.test_killed_at_every_effect import SIDES, every_turn, side_of
from tests.rollout.chaos.outcome import status_of
from tests.rollout.chaos.scenarios import SCENARIOS, Scenario, run
from tests.rollout.chaos.troubles import TROUBLES

BY_NAME: Final = {scenario.name: scenario for scenario in SCENARIOS}
PLAYED: Final = 14
"""How many of the troubles are played in a usual run."""
pytestmark = pytest.mark.timeout(24 * 3600 if LONG else 900)


@cache
def effects_of(name: str) -> int:
    """How many things are done in a rollout in which nothing goes wrong."""
    return len(run(BY_NAME[name]).meter.effects)


Turn = tuple[int, str, bool]
"""At which effect, on which side of it, and whether the leader lives on."""


def turns(scenario: Scenario, injection: Injection) -> Iterator[Turn]:
    if LONG:
        yield from every_turn(effects_of(scenario.name), injection)
        return
    chance = replay.rng("rollout", scenario.name, injection.name)
    live, side = injection is not TROUBLES[0] and chance.random() < 0.5, chance.choice(SIDES)
    yield chance.randint(1, effects_of(scenario.name)), (side_of(injection) or side) if live else side, live


def chosen() -> Iterator[tuple[Scenario, Injection]]:
    """Every rollout without a trouble but the crash, and some troubles in one of the rollouts each; or all with all."""
    played = TROUBLES if LONG else (TROUBLES[0], *replay.rng("troubles").sample(TROUBLES[1:], PLAYED))
    for injection in played:
        one = replay.rng("rollout", injection.name).choice(SCENARIOS)
        for scenario in SCENARIOS if LONG or injection is TROUBLES[0] else (one,):
            yield scenario, injection


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_undisturbed_it_comes_to_its_end(scenario: Scenario) -> None:
    world = run(scenario)
    status = status_of(world)
    assert status.rollout.completed_time is not None, "\n".join(world.story.lines)
    assert {wait.reason for wait in status.rollout.waits} == set()


@pytest.mark.parametrize(("scenario", "injection"), [pytest.param(s, i, id=f"{i.name}-{s.name}") for s, i in chosen()])
def test_killed_at_every_effect(scenario: Scenario, injection: Injection) -> None:
    for number, moment, live in turns(scenario, injection):
        run(scenario, strike=(number, moment, injection), live=live)
