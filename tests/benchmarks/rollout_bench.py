"""What a rollout over a busy cluster takes and costs, by the planner and by peers' policies; and how long it decides.

`python -m tests.benchmarks.rollout_bench --trace one-gpu --trace philly-2017.csv --load 70`; without a trace 64 servers
run the jobs of two made-up ones (`rollout_traces`). Simulated: time, jobs, scheduler, servers; peers' policies, written
after their documents. Real: the planner, the same code that a controller asks. Each ratio is of one rollout; a cell
gives the median (least to most) over the days of the trace on which the rollouts begin; the day is the seed of a
made-up trace.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from provisioner.api.pools.upgrade_strategy import Canary, DomainCap, UpgradeStrategy
from provisioner.rollout.fleet import Member, MemberState, Occupancy, PoolSnapshot
from provisioner.rollout.plan import plan
from provisioner.rollout.simulate.figures import Figures, compare
from provisioner.rollout.simulate.plot import draw_fleet
from provisioner.rollout.simulate.setup import DAY, POLICIES, SimulationQuestion, make_scenario
from tests.benchmarks.peer_policies import PEER_NAMES, policy_named
from tests.benchmarks.record import RESULTS, Check, Goal, begin, say
from tests.benchmarks.rollout_traces import make_trace

ATTEMPT: Final = 600.0
MADE_UP: Final = ("mixed", "one-gpu")
BEGINS: Final = (30.0, 45.0, 60.0)
ONE_GPU_BEGINS: Final = (124.0, 128.0, 132.0)
"""The load is that of the week before and after; most jobs of this trace are submitted from day 116 on."""
DELAYS_TO_LOAD: Final = 0.7
"""Above that load jobs queue for so long that chance alone moves their mean delay by minutes."""
GOALS: Final = {
    "interrupted": Goal("jobs that the planner interrupted, at worst", 0),
    "to_bound": Goal("makespan, to the bound of what ran at the begin", 1.02),
    "extra": Goal("GPU-hours that idled closed while jobs queued, to those of the update itself", 0.05),
    "to_reached": Goal("makespan, to the moments at which the servers first ran nothing", 1.02),
    "closed": Goal("GPU-hours that idled closed, to those of the update itself", 0.05),
    "later": Goal("s by which jobs start later, on average", 10),
    "worst": Goal("h by which a job starts later, at worst", 1),
    "decision": Goal("s of processor time of one decision for 10,000 servers", 0.05),
}
COLUMNS: Final = (
    "trace",
    "servers",
    "load",
    "policy",
    "days",
    "to bound",
    "to reached",
    "interrupted",
    "lost GPU-h",
    "update GPU-h",
    "closed idle",
    "extra idle",
    "jobs later",
    "at worst",
    "by chance",
    "at worst",
)
LARGE_POLICIES: Final = ("provisioner", "provisioner-stragglers", "idle-first", "kured-blocking")
NOON: Final = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """A cluster, the share of its GPUs that jobs ask for, and the days of the trace on which rollouts begin on it.

    trace: one of MADE_UP, or the path of a CSV file.
    """

    trace: str
    servers: int
    load: float
    begins: tuple[float, ...]
    policies: tuple[str, ...] = (*POLICIES, *PEER_NAMES)

    @property
    def name(self) -> str:
        return f"{Path(self.trace).stem}, {self.servers} servers, {self.load:.0%}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--trace",
        action="append",
        help=f"{', '.join(MADE_UP)}, or a CSV file: timestamp, duration, num_gpus; may be repeated",
    )
    parser.add_argument("--load", type=int, action="append", help="percent of the GPUs; may be repeated")
    parser.add_argument("--small", action="store_true", help="64 servers alone, as with the made-up traces")
    options, _ = parser.parse_known_args(arguments)
    recorded = begin("rollout")
    cases = [case for trace in options.trace or MADE_UP for case in make_cases(trace, options.load, options.small)]
    decisions = measure_decisions()
    runs = [(case, day) for case in cases for day in case.begins]
    with ProcessPoolExecutor(max_workers=2) as pool:
        futures = [(case, day, pool.submit(run_case, case, day)) for case, day in runs]
        found: dict[Case, list[list[Figures]]] = {case: [] for case in cases}
        for case, day, future in futures:
            found[case].append(future.result())
            say(f"{case.name}, day {day:g}: done")
    if recorded.is_recorded(len(cases[0].begins)):
        draw(found)
    return recorded.finish(table(found), check_goals(found, decisions), min(len(case.begins) for case in cases))


def make_cases(trace: str, percents: Sequence[int] | None, small: bool) -> list[Case]:
    """What is measured of a trace."""
    begins = ONE_GPU_BEGINS if trace == "one-gpu" else BEGINS
    usual = (50, 70) if trace in MADE_UP else (50, 70, 90)  # made-up jobs only queue at more
    cases = [Case(trace, 64, percent / 100, begins) for percent in percents or usual]
    if trace not in MADE_UP and not small:
        cases += [Case(trace, 512, 0.7, begins, LARGE_POLICIES), Case(trace, 1700, 0.7, begins, LARGE_POLICIES)]
    return cases


def table(found: Mapping[Case, Sequence[Sequence[Figures]]]) -> str:
    lines = [
        "## A rollout over a cluster that runs the jobs of a trace",
        "",
        f"Servers of 8 GPUs, {ATTEMPT:.0f} s out of use each, a tenth at once (kured: one), canary of 1 with 600 s. "
        "Simulated on the trace, scaled to the load; first in first out, who fits goes ahead; one job on the fullest "
        f"server it fits, wide ones on whole servers. Bound: of what ran at the begin; reached: of the "
        "moments at which the servers first ran nothing. Jobs later: how much later those start that are submitted "
        "meanwhile, on average and at worst; by chance: the same without a rollout, if the scheduler picks at random "
        "between equally full servers. Median (least to most) over rollouts on three days of the trace. All times but "
        "those of decisions are simulated: other work on the machine does not change them.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{'---|' * len(COLUMNS)}",
    ]
    for case, outcomes in found.items():
        lines += [row(case, [figures[number] for figures in outcomes]) for number in range(len(case.policies))]
    return "\n".join(lines)


def check_goals(
    found: Mapping[Case, Sequence[Sequence[Figures]]], decisions: Mapping[str, Sequence[float]]
) -> list[Check]:
    """For the planner's own policies; with closed stragglers, which idle on purpose, the last two goals do not count.

    A rollout that did not end has missed every goal about its makespan.
    """
    checks = []
    for case, outcomes in found.items():
        for number, name in enumerate(case.policies):
            if name not in ("provisioner", "provisioner-stragglers"):
                continue
            figures = [each[number] for each in outcomes]
            words = f"{case.name}, {figures[0].outcome.policy}"
            values = {
                "interrupted": [float(max(each.outcome.interrupted for each in figures))],
                "to_bound": [each.to_bound or math.inf for each in figures],
                "extra": [each.extra_share for each in figures],
            }
            if name == "provisioner":
                values["to_reached"] = [each.to_reached or math.inf for each in figures]
                values["closed"] = [each.closed_share for each in figures]
            if name == "provisioner" and case.load <= DELAYS_TO_LOAD:
                values["later"] = [each.delay.mean for each in figures]
                values["worst"] = [max(each.delay.worst for each in figures) / 3600]
            checks += [GOALS[goal].check(words, measured) for goal, measured in values.items()]
    return checks + [GOALS["decision"].check(name, seconds) for name, seconds in decisions.items()]


def run_case(case: Case, begin: float) -> list[Figures]:
    """One rollout for each policy of the case."""
    strategy = UpgradeStrategy(max_unavailable="100%", canary=Canary(count=1, soak_seconds=600))
    question = SimulationQuestion(
        servers=case.servers,
        gpus=8,
        load=case.load,
        begins=begin,
        longest=60.0,
        attempt=ATTEMPT,
        strategy=strategy,
        seed=1,
    )
    scenario = make_scenario(make_trace(case.trace, seed=round(begin)), question)
    return compare(scenario, [policy_named(name, scenario, strategy) for name in case.policies])


def row(case: Case, several: Sequence[Figures]) -> str:
    """A line of the table."""
    done = [f for f in several if f.outcome.makespan is not None]
    left = "" if len(done) == len(several) else f", {len(several) - len(done)} of {len(several)} not done in 60 days"
    cells = [
        Path(case.trace).stem,
        str(case.servers),
        f"{case.load:.0%}",
        several[0].outcome.policy,
        spread([f.outcome.makespan / DAY for f in done if f.outcome.makespan is not None], "{:.1f}") + left,
        spread([f.to_bound for f in done if f.to_bound is not None], "{:.3f}"),
        spread([f.to_reached for f in done if f.to_reached is not None], "{:.3f}"),
        spread([float(f.outcome.interrupted) for f in several], "{:.0f}"),
        spread([f.outcome.lost / 3600 for f in several], "{:,.0f}"),
        spread([f.outcome.unavoidable / 3600 for f in several], "{:,.0f}"),
        spread([f.closed_share for f in several], "{:.1%}"),
        spread([f.extra_share for f in several], "{:.1%}"),
        spread([f.delay.mean for f in several], "{:+.1f} s"),
        spread([f.delay.worst / 3600 for f in several], "{:.1f} h"),
        spread([f.by_chance.mean for f in several], "{:+.1f} s"),
        spread([f.by_chance.worst / 3600 for f in several], "{:.1f} h"),
    ]
    return f"| {' | '.join(cells)} |"


def spread(values: Sequence[float], form: str) -> str:
    """Median (least to most)."""
    if not values:
        return "-"
    middle = form.format(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({form.format(min(values))} to {form.format(max(values))})"


def draw(found: dict[Case, list[list[Figures]]]) -> None:
    """The fleet over time, by each policy, of one rollout."""
    for case in [case for case in found if case.load == 0.7 and case.servers == 64][-1:]:
        outcomes = [figures.outcome for figures in found[case][1]]
        for name, outcome in zip(case.policies, outcomes, strict=True):
            if name in LARGE_POLICIES:
                end = max(o.makespan or 60 * DAY for o in outcomes)
                title = f"{case.servers} servers at {case.load:.0%} load: {outcome.policy}"
                path = RESULTS / f"rollout-{name}.svg"
                path.write_text(draw_fleet(title, case.servers, outcome.samples, end))


def measure_decisions(servers: int = 10_000, times: int = 40) -> dict[str, list[float]]:
    """Seconds of processor time that the planner takes for a pool of so many servers in racks of 16."""
    chance = random.Random(1)
    rules = UpgradeStrategy(max_unavailable="100%", domains=(DomainCap(key="rack", max_unavailable="50%"),))
    found: dict[str, list[float]] = {}
    for name, share in (("all idle", 0.0), ("nine of ten run jobs", 0.9), ("all run jobs", 1.0)):
        fleet = make_fleet(servers, share, chance)
        found[name] = []
        for _ in range(times):
            begun = time.process_time()
            decided = plan(fleet, rules, NOON)
            found[name].append(time.process_time() - begun)
            assert len(decided.waits) + len(decided.claims) > servers * 0.8
    return found


def make_fleet(servers: int, busy: float, chance: random.Random) -> PoolSnapshot:
    """A pool in mid-rollout: one in twenty updated, some broken, some on their way; jobs of one to four on each."""
    now = NOON.timestamp()
    members: list[Member] = []
    states: tuple[MemberState, ...] = ("Outdated", "Updated", "Updating", "Down")
    for number in range(servers):
        name, domains = f"r{number // 16:03d}-u{number % 16:02d}", (f"r{number // 16:03d}",)
        state = chance.choices(states, (92, 5, 2, 1))[0]
        runs = None
        if state == "Outdated" and chance.random() < busy:
            began = [now - 60 * chance.randint(1, 10_000) for _ in range(chance.randint(1, 4))]
            runs = Occupancy(
                jobs=tuple(f"{name}-{job}" for job in range(len(began))),
                free=chance.choice((0.0, 0.25, 0.5)),
                first=min(began),
                ends=now + 3600 * chance.randint(1, 99),
            )
        since = now - 3600 if state == "Updated" else None
        members.append(Member(name=name, state=state, runs=runs, since=since, domains=domains))
    return PoolSnapshot(members=members, began=now - 86_400, passed=1)


if __name__ == "__main__":
    sys.exit(main())
