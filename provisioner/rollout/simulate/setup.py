"""From a trace and an operator's question to a scenario and the policies to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.pools.upgrade_strategy import Stragglers, UpgradeStrategy
from provisioner.rollout.room import DEFAULT_PARALLEL
from provisioner.rollout.simulate.policy import IdleOnly, Planner, Policy
from provisioner.rollout.simulate.run import Scenario
from provisioner.rollout.simulate.trace import TraceJob, mean_gpus, scale_trace
from provisioner.rules.amounts import resolve_amount

DAY: Final = 86400.0
LOAD_DAYS: Final = 7.0
"""The load is that of so many days before the rollout begins, and as many after."""
CLOSES_AT_ONCE: Final = Stragglers(after_seconds=0)


@dataclass(frozen=True, kw_only=True)
class SimulationQuestion:
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


def make_scenario(trace: Sequence[TraceJob], question: SimulationQuestion) -> Scenario:
    """The trace as traffic for the asked cluster, without jobs that are wider than it.

    Raises: NeedsHuman if nothing runs there at that time, or too much would.
    """
    begin, gpus = question.begins * DAY, question.servers * question.gpus
    fitting = [job for job in trace if held_gpus(job, question.gpus) <= gpus]
    used = load_of(fitting, question)
    if used <= 0:
        raise NeedsHuman(
            f"no job of the trace that fits runs around day {question.begins:g}, when the rollout begins",
            hint="choose another --begin",
        )
    amount = question.strategy.max_parallel
    parallel = resolve_amount(DEFAULT_PARALLEL if amount is None else amount, question.servers)
    if parallel < 1:
        raise NeedsHuman("no server may be on its way to the image (--max-parallel)", hint="allow at least 1")
    return Scenario(
        jobs=scale_trace(fitting, question.load / used, question.seed),
        servers=question.servers,
        gpus=question.gpus,
        began=begin,
        attempt=question.attempt,
        parallel=parallel,
        longest=question.longest * DAY,
    )


def load_of(jobs: Sequence[TraceJob], question: SimulationQuestion) -> float:
    """Share of the cluster's GPUs that the jobs hold around the begin, did each start when it was submitted."""
    begin = question.begins * DAY
    held = (TraceJob(job.submitted, job.duration, held_gpus(job, question.gpus)) for job in jobs)
    used = mean_gpus(held, max(0.0, begin - LOAD_DAYS * DAY), begin + LOAD_DAYS * DAY)
    return used / (question.servers * question.gpus)


def held_gpus(job: TraceJob, gpus: int) -> int:
    """GPUs that nobody else can have while it runs: of whole servers, where one does not do."""
    return job.gpus if job.gpus <= gpus else -(-job.gpus // gpus) * gpus


POLICIES: Final[Mapping[str, Callable[[Scenario, UpgradeStrategy], Policy]]] = {
    "provisioner": lambda scenario, strategy: Planner(strategy),
    "provisioner-stragglers": lambda scenario, strategy: Planner(
        replace(strategy, stragglers=strategy.stragglers or CLOSES_AT_ONCE)
    ),
    "provisioner-unsteered": lambda scenario, strategy: Planner(replace(strategy, steer_jobs=False)),
    "idle-only": lambda scenario, strategy: IdleOnly(parallel=scenario.parallel),
}
"""By name, for a scenario and the pool's strategy."""
