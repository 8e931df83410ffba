"""How much load a server carries: steps up to its knee, then twice as much."""

from __future__ import annotations

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
    steady: Load
    """At STEADY_RATE, which a slow server does not carry."""

    @property
    def knee(self) -> float:
        """Most that it carried with hardly a loss."""
        return max((step.completed_per_second for step in self.steps if step.completed_share >= COMPLETE), default=0.0)

    @property
    def microseconds_each(self) -> float:
        """The server's processor time for one exchange at its knee: what a busy machine distorts least."""
        carried = [step for step in self.steps if step.completed_share >= COMPLETE]
        at_knee = max(carried, key=lambda step: step.completed_per_second, default=self.overload)
        return 1e6 * at_knee.server_processor_seconds / at_knee.exchanges if at_knee.exchanges else 0.0

    @property
    def is_steady(self) -> bool:
        """Whether STEADY_RATE is within what it carries; if not, what was measured there is of an overload."""
        return self.steady.completed_share >= COMPLETE

    @property
    def microseconds_each_steady(self) -> float:
        """The same at STEADY_RATE."""
        return 1e6 * self.steady.server_processor_seconds / self.steady.exchanges if self.steady.exchanges else 0.0

    @property
    def at_overload(self) -> float:
        return self.overload.completed_per_second


def find_knee(load: Callable[[int], Load], first: int) -> Result:
    """Double the rate until exchanges are lost, close in on the knee, then offer twice the knee."""
    steps: list[Load] = []
    steady = load(STEADY_RATE)
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
    return Result(tuple(steps), load(max(2 * carried, 100)), steady)
