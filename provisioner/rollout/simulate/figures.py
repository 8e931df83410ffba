"""What rollouts of one scenario by several policies took and cost, side by side."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.rollout.simulate.policy import Policy
from provisioner.rollout.simulate.run import Scenario, SimulatedRollout, simulate, simulate_without


@dataclass(frozen=True)
class Delay:
    """By how many seconds jobs start later than in the same cluster without a rollout: on average, and the worst."""

    mean: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One rollout. Ratios are None where it did not end.

    to_bound: makespan to the least that any takes which interrupts nothing, by the jobs that ran when it began.
    to_reached: makespan to the least that was possible once jobs had been placed as they were; None if some were
    interrupted.
    closed_share, extra_share: GPU-time that idled on closed servers, and that of it for which jobs queued, as shares of
    the unavoidable.
    delay: of the jobs submitted during the rollout. by_chance: of the same jobs without a rollout, if the scheduler
    picks at random between equally full servers: what any other placement does to single jobs.
    not_started: how many of them had not started when the simulation ended; they count in neither.
    """

    outcome: SimulatedRollout
    to_bound: float | None
    to_reached: float | None
    closed_share: float
    extra_share: float
    delay: Delay
    by_chance: Delay
    not_started: int


def compare(scenario: Scenario, policies: Sequence[Policy]) -> list[Figures]:
    """Simulate the scenario once with each policy, and twice without a rollout."""
    outcomes = [simulate(scenario, policy) for policy in policies]
    until = max(outcome.over for outcome in outcomes)
    undisturbed = simulate_without(scenario, until)
    by_chance = simulate_without(scenario, until, random.Random(1))  # noqa: S311 - a simulation, to be repeated
    return [_figures(scenario, outcome, undisturbed, by_chance) for outcome in outcomes]


def _figures(
    scenario: Scenario, outcome: SimulatedRollout, undisturbed: Mapping[int, float], by_chance: Mapping[int, float]
) -> Figures:
    meanwhile = [n for n, job in enumerate(scenario.jobs) if scenario.began <= job.submitted < outcome.over]
    started = [n for n in meanwhile if n in outcome.starts and n in undisturbed]
    unavoidable = outcome.unavoidable or 1.0
    return Figures(
        outcome=outcome,
        to_bound=_ratio(outcome.makespan, outcome.bound),
        to_reached=_ratio(outcome.makespan, outcome.reached) if not outcome.interrupted else None,
        closed_share=outcome.closed_idle / unavoidable,
        extra_share=outcome.extra / unavoidable,
        delay=_delay([outcome.starts[n] - undisturbed[n] for n in started]),
        by_chance=_delay([by_chance[n] - undisturbed[n] for n in started if n in by_chance]),
        not_started=len(meanwhile) - len(started),
    )


def _delay(seconds: Sequence[float]) -> Delay:
    return Delay(sum(seconds) / len(seconds), max(seconds)) if seconds else Delay(0.0, 0.0)


def _ratio(makespan: float | None, bound: float) -> float | None:
    return makespan / bound if makespan is not None and bound > 0 else None
