"""How much load a server carries: steps up to its knee, then twice as much."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tests.benchmarks.dhcp.perfdhcp import Load

COMPLETE = 0.98
"""Share of exchanges that must complete for a rate to count as carried."""
STEADY_RATE = 500
_FACTOR_AT_END = 1.15
"""The knee is known when the best rate carried and the least not carried are this close."""


@dataclass(frozen=True)
class Result:
    """One server in one repetition; rates are completed exchanges a second."""

    steps: tuple[Load, ...]
    overload: Load
    steady: Load | None
    """At STEADY_RATE; None if that is beyond its knee."""

    @property
    def at_knee(self) -> Load | None:
        """The most that it carried with hardly a loss."""
        carried = [step for step in self.steps if step.completed_share >= COMPLETE]
        return max(carried, key=lambda step: step.completed_per_second, default=None)

    @property
    def knee(self) -> float:
        return self.at_knee.completed_per_second if self.at_knee else 0.0

    @property
    def microseconds_each(self) -> float:
        """At its knee."""
        return self.at_knee.microseconds_each if self.at_knee else math.inf

    @property
    def carried_steady(self) -> Load | None:
        """What was measured at STEADY_RATE, unless exchanges were lost: then it is a figure of an overload."""
        return self.steady if self.steady and self.steady.completed_share >= COMPLETE else None

    @property
    def at_overload(self) -> float:
        return self.overload.completed_per_second


def find_knee(load: Callable[[int], Load], first: int) -> Result:
    """Double the rate until exchanges are lost, close in on the knee, then offer twice the knee.

    STEADY_RATE is offered only to a server that carries it.
    """
    steps: list[Load] = []
    carried, lost, rate = 0, 0, first
    while len(steps) < 12:
        step = load(rate)
        steps.append(step)
        if step.completed_share >= COMPLETE and step.offered_per_second >= COMPLETE * rate:
            carried = max(carried, rate)
        else:
            lost = min(lost or rate, rate)
        if not lost:
            rate *= 2
        elif not carried:
            rate //= 2
        elif lost / carried <= _FACTOR_AT_END:
            break
        else:
            rate = round((carried * lost) ** 0.5)
        if rate < 50:
            break
    steady = load(STEADY_RATE) if carried >= STEADY_RATE else None
    return Result(tuple(steps), load(max(2 * carried, 100)), steady)
