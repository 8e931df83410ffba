"""How long a drain takes while a hundred slurmrestds of other pools hang or drip, beside what it usually takes.

`python -m tests.benchmarks.hung_bench --backends 100 --drains 3 --repetitions 5`. Real: the executor with its four
workers, its lanes, HTTP and every time-out. Fake: the slurmrestds, and the API server, in memory. Usual: the same
fleet, whose slurmrestds answer and have nothing to do. Most of a drain is the executor's constant pause between the
claim and its second look; the table shows what is left without it. The three take turns in each repetition; the servers
that are drained are of a pool without Slurm, and of one whose slurmrestd answers.
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import structlog

from provisioner.maintenance.phases.claiming import SETTLE_SECONDS
from tests.benchmarks.record import Check, Goal, begin, ratios, say, spread
from tests.jobs.fake_slurmrestd import FakeSlurmrestds
from tests.maintenance.live_executor import LiveExecutor

GOALS: Final = {"drain": Goal("seconds of a drain, to those beside slurmrestds that answer", 1.2)}
CASES: Final = ("usual", "hangs", "drips")
KINDS: Final = {"plain": "without Slurm", "healthy": "with a slurmrestd that answers"}
WORDS: Final = {"usual": "answer, nothing to do", "hangs": "say nothing", "drips": "a byte each 0.2 s"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", type=int, default=100)
    parser.add_argument("--drains", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=5)
    options, _ = parser.parse_known_args(arguments)
    recorded = begin("hung")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    results: dict[str, list[Run]] = {case: [] for case in CASES}
    for repetition in range(options.repetitions):
        for case in CASES[repetition % 3 :] + CASES[: repetition % 3]:
            run = measure(case, options.backends, options.drains)
            results[case].append(run)
            say(f"{repetition + 1}: {case}: {run}")
    return recorded.finish(table(results, options.backends), check_goals(results), options.repetitions)


class Run:
    """Seconds of each drain, and the most workers that waited for a slurmrestd when it was looked."""

    def __init__(self, plain: list[float], healthy: list[float], blocked: int, calls: int) -> None:
        self.plain, self.healthy = statistics.median(plain), statistics.median(healthy)
        self.blocked, self.calls = blocked, calls

    def __repr__(self) -> str:
        return f"{self.plain:.2f} s, {self.healthy:.2f} s, {self.blocked} workers blocked, {self.calls} calls hung"


def measure(case: str, backends: int, drains: int) -> Run:
    """One fleet, from its start to its end."""
    others = [f"slurm-{number:03}" for number in range(backends)]
    plain, healthy = ([f"{kind}-{number}" for number in range(drains)] for kind in ("plain", "healthy"))
    with closing(FakeSlurmrestds({f"/{name}": [name] for name in (*others, *healthy)})) as slurm:
        urls = {name: slurm.url(f"/{name}") for name in (*others, *healthy)}
        executor = LiveExecutor({**urls, **dict.fromkeys(plain)})
        try:
            if case != "usual":
                getattr(slurm, case).update(f"/{name}" for name in others)
                for name in others:
                    executor.ask_to_drain(name)
                executor.wait_until(lambda: executor.calls_under_way() == backends, "all are being asked")
            calls, blocked, seconds = executor.calls_under_way(), 0, dict[str, float]()
            for name in (*plain, *healthy):
                executor.ask_to_drain(name)
                seconds[name] = executor.wait_until(lambda name=name: executor.phase(name) == "Drained", name)
                blocked = max(blocked, len(executor.blocked_workers()))
        finally:
            slurm.let_go()
            executor.close()
    return Run([seconds[name] for name in plain], [seconds[name] for name in healthy], blocked, calls)


def check_goals(results: dict[str, list[Run]]) -> list[Check]:
    return [
        GOALS["drain"].check(
            f"{words}; the others {WORDS[case]}",
            ratios([getattr(run, kind) for run in runs], [getattr(run, kind) for run in results["usual"]]),
        )
        for case, runs in results.items()
        if case != "usual"
        for kind, words in KINDS.items()
    ]


def table(results: dict[str, list[Run]], backends: int) -> str:
    heads = [f"{words} | ratio | ms without the pause" for words in KINDS.values()]
    rows = [
        f"## A drain beside {backends} fake slurmrestds that hang or drip",
        "",
        "Seconds from a Maintenance (Drain, WhenIdle) to its phase Drained, one server after the other; executor of "
        f"four workers with all its time-outs, API server in memory, slurmrestds that are fakes, {os.cpu_count()} "
        "processors; repetitions take turns. Median (least to most); a ratio is of one repetition. "
        f"{SETTLE_SECONDS:g} s of each drain are a constant: the pause between the claim and the second look at jobs.",
        "",
        f"| the other pools' slurmrestds | hung calls | workers blocked | {' | '.join(heads)} |",
        "|" + "---|" * 9,
    ]
    for case, runs in results.items():
        cells = []
        for kind in KINDS:
            seconds, usual = ([getattr(run, kind) for run in each] for each in (runs, results["usual"]))
            rest = [1000 * (each - SETTLE_SECONDS) for each in seconds]
            cells += [spread(seconds, ".2f"), spread(ratios(seconds, usual), ".2f"), spread(rest, ".0f")]
        calls, blocked = min(run.calls for run in runs), max(run.blocked for run in runs)
        rows.append(f"| {WORDS[case]} | {calls} | {blocked} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
