"""What all benchmarks share: goals, the conditions of a run, and the table that is recorded.

A benchmark declares its goals in `GOALS` and nowhere else. It calls `begin` before it measures and returns the result
of `Run.finish`, which writes goals, conditions and origin under the table. Docs link to the table and repeat no limit.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE / "results"
MAX_LOAD: Final = 1.0
"""The load average of the last minute above which nothing is measured without FORCE=1."""
MIN_REPETITIONS: Final = 3


@dataclass(frozen=True)
class Goal:
    """A limit for the median over the repetitions. `compares`: what is measured, in which unit, and to what."""

    compares: str
    limit: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.limit)}"

    def check(self, case: str, values: Iterable[float]) -> Check:
        """The goal for one row of the table; `values`: one for each repetition, at least one."""
        return Check(self, case, tuple(values))


@dataclass(frozen=True)
class Check:
    """A goal and what was measured."""

    goal: Goal
    case: str
    values: tuple[float, ...]

    @property
    def is_met(self) -> bool:
        median = statistics.median(self.values)
        return median >= self.goal.limit if self.goal.at_least else median <= self.goal.limit

    @property
    def measured(self) -> str:
        """Median (least to most)."""
        middle = number(statistics.median(self.values))
        if len(self.values) == 1:
            return middle
        return f"{middle} ({number(min(self.values))} to {number(max(self.values))})"


def goals_table(checks: Sequence[Check]) -> str:
    """Every goal with what was measured; a missed one says MISSED."""
    if not checks:
        return "No goal is set for this benchmark."
    rows = ["| goal | limit | case | measured | |", "|---|---|---|---|---|"]
    rows += [
        f"| {check.goal.compares} | {check.goal} | {check.case} | {check.measured} | "
        f"{'met' if check.is_met else '**MISSED**'} |"
        for check in checks
    ]
    return "\n".join(rows)


def number(value: float) -> str:
    """With four significant digits at least, so that a value beyond its limit never reads as the limit."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def spread(values: Sequence[float], form: str = ".1f") -> str:
    """`12.3 (11.9 to 14.0)`: median (least to most)."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of each repetition."""
    return [one / other for one, other in zip(ours, theirs, strict=True)]


def begin(name: str) -> Run:
    """Start a run. Ends the program if other work on the machine would be measured, too, unless FORCE=1 is set."""
    load = os.getloadavg()[0]
    if load > MAX_LOAD and os.environ.get("FORCE") != "1":
        sys.exit(
            f"{name}_bench: the load average of the last minute is {load:.1f}, and above {MAX_LOAD:g} nothing is "
            "measured; wait until the machine is idle, or set FORCE=1, which the table will say"
        )
    return Run(name, load, processor_ticks())


@dataclass(frozen=True)
class Run:
    """One run of a benchmark. load: of the minute before; ticks: all and stolen, when it began."""

    name: str
    load: float
    ticks: tuple[int, int]

    def is_recorded(self, repetitions: int) -> bool:
        return repetitions >= MIN_REPETITIONS

    def finish(self, table: str, checks: Sequence[Check], repetitions: int) -> int:
        """Print the table with goals and conditions, and record it; exit status 1 if a goal is missed."""
        text = f"{table.strip()}\n\n{goals_table(checks)}\n\n{self.conditions(repetitions)}\n"
        print(text)
        if self.is_recorded(repetitions):
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / f"{self.name}.md").write_text(text)
        else:
            say(f"{self.name}: not recorded: {repetitions} repetitions, and {MIN_REPETITIONS} are needed")
        missed = [check for check in checks if not check.is_met]
        for check in missed:
            say(f"MISSED: {check.goal.compares}, {check.case}: {check.measured}, goal {check.goal}")
        return 1 if missed else 0

    def conditions(self, repetitions: int) -> str:
        """Repetitions, load, stolen time, date, commit and machine."""
        everything, stolen = (now - then for now, then in zip(processor_ticks(), self.ticks, strict=True))
        forced = f" **Above {MAX_LOAD:g}: measured with FORCE=1.**" if self.load > MAX_LOAD else ""
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)tests/benchmarks")
        return (
            f"{repetitions} repetitions. Load average of the minute before: {self.load:.1f}, of the last minute: "
            f"{os.getloadavg()[0]:.1f}; {100 * stolen / max(1, everything):.1f} % of the processors' time was stolen."
            f"{forced}\nMeasured {datetime.now(UTC):%Y-%m-%d} at commit "
            f"{git('rev-parse', '--short=12', 'HEAD') or 'unknown'}{' with changes' if changed else ''}; "
            f"{os.cpu_count()} cores, Linux {platform.release().split('-')[0]}, Python {platform.python_version()}."
        )


def processor_ticks() -> tuple[int, int]:
    """Of all processors since the start of the machine, idle ones among them; and those that the hypervisor stole."""
    fields = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[7]


def git(*arguments: str) -> str:
    """Output of git; empty outside of a checkout."""
    ran = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def say(words: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {words}", file=sys.stderr, flush=True)
