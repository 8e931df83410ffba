"""From a trace and an operator's question to a scenario and the policies to compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api.errors import NeedsHuman
from provisioner.api.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.amounts import resolve_amount
from provisioner.rollout.room import DEFAULT_PARALLEL
from provisioner.rollout.simulate.policy import DrainInOrder, Kured, Planner, Policy
from provisioner.rollout.simulate.run import Scenario
from provisioner.rollout.simulate.trace import TraceJob, mean_gpus, scale_trace

DAY: Final = 86400.0
LOAD_DAYS: Final = 7.0
"""The load is that of so many days before the rollout begins, and as many after."""
POLICY_NAMES: Final = ("provisioner", "provisioner-ends-known", "idle-first", "in-order", "kured-blocking", "kured")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What an operator wants to know. load: share of the GPUs that jobs use around the begin, from 0 to 1.

    begins: after how many days of the trace; longest: after how many days a rollout is given up. attempt: seconds for
    which a server is out of use for its new image.
    """

    servers: int
    gpus: int
    load: float
    begins: float
    longest: float
    attempt: float
    strategy: UpgradeStrategy
    seed: int


def make_scenario(trace: Sequence[TraceJob], question: Question) -> Scenario:
    """The trace as traffic for the asked cluster. Raises: NeedsHuman if nothing runs there at that time."""
    begin = question.begins * DAY
    used = mean_gpus(trace, max(0.0, begin - LOAD_DAYS * DAY), begin + LOAD_DAYS * DAY)
    if used <= 0:
        raise NeedsHuman(
            f"no job of the trace runs around day {question.begins:g}, when the rollout begins",
            hint="choose another --begin",
        )
    factor = question.servers * question.gpus * question.load / used
    widest = question.servers * question.gpus
    jobs = [job for job in scale_trace(trace, factor, question.seed) if job.gpus <= widest]
    amount = question.strategy.max_parallel
    parallel = resolve_amount(DEFAULT_PARALLEL if amount is None else amount, question.servers)
    if parallel < 1:
        raise NeedsHuman("no server may be on its way to the image (--max-parallel)", hint="allow at least 1")
    return Scenario(
        jobs=jobs,
        servers=question.servers,
        gpus=question.gpus,
        began=begin,
        attempt=question.attempt,
        parallel=parallel,
        longest=question.longest * DAY,
    )


def make_policy(
    name: str, scenario: Scenario, strategy: UpgradeStrategy, clock: Callable[[], float] | None = None
) -> Policy:
    """One of POLICY_NAMES; peers may take as many servers out of use at once as the strategy allows, but for kured's
    lock, which one holds."""
    match name:
        case "provisioner" | "provisioner-ends-known":
            return Planner(strategy, known_ends=name != "provisioner", clock=clock)
        case "idle-first":
            return DrainInOrder("idle-first (SUNK)", parallel=scenario.parallel, idle_first=True)
        case "in-order":
            return DrainInOrder("in-order (k8s-operator-libs)", parallel=scenario.parallel, idle_first=False)
        case _:
            return Kured(blocking=name == "kured-blocking")
