"""What rollouts of one scenario by several policies took and cost, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from provisioner.rollout.simulate.policy import Policy
from provisioner.rollout.simulate.run import Outcome, Scenario, simulate, simulate_without


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One rollout. Ratios are None where it did not end.

    to_bound: makespan to the least that any takes which interrupts nothing, by the jobs that ran when it began.
    to_reached: makespan to the least that was possible once jobs had been placed as they were; None if some were
    interrupted.
    extra_share: extra idle GPU-time, as a share of the unavoidable.
    delay: mean seconds by which jobs submitted during the rollout started later than without one; worst: the longest.
    """

    outcome: Outcome
    to_bound: float | None
    to_reached: float | None
    extra_share: float
    delay: float
    worst: float


def compare(scenario: Scenario, policies: Sequence[Policy]) -> list[Figures]:
    """Simulate the scenario once with each policy, and once without a rollout."""
    outcomes = [simulate(scenario, policy) for policy in policies]
    longest = max(scenario.longest if o.makespan is None else o.makespan for o in outcomes)
    undisturbed = simulate_without(scenario, longest)
    return [_figures(scenario, outcome, undisturbed) for outcome in outcomes]


def _figures(scenario: Scenario, outcome: Outcome, undisturbed: Mapping[int, float]) -> Figures:
    span = scenario.longest if outcome.makespan is None else outcome.makespan
    delays = [
        started - undisturbed[number]
        for number, started in outcome.starts.items()
        if scenario.began <= scenario.jobs[number].submitted < scenario.began + span and number in undisturbed
    ]
    return Figures(
        outcome=outcome,
        to_bound=_ratio(outcome.makespan, outcome.bound),
        to_reached=_ratio(outcome.makespan, outcome.reached) if not outcome.interrupted else None,
        extra_share=outcome.extra / outcome.unavoidable if outcome.unavoidable else 0.0,
        delay=sum(delays) / len(delays) if delays else 0.0,
        worst=max(delays, default=0.0),
    )


def _ratio(makespan: float | None, bound: float) -> float | None:
    return makespan / bound if makespan is not None and bound > 0 else None
