"""`provisioner rollout simulate`: what a rollout would take and cost, asked of a trace before it is done."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.upgrade_strategy import (
    LONGEST_SOAK_SECONDS,
    Canary,
    Stragglers,
    UpgradeDeadline,
    UpgradeStrategy,
)
from provisioner.cli import printer
from provisioner.cli.kubectl.printing import table
from provisioner.cli.options import FILE
from provisioner.cli.progress import Progress
from provisioner.rollout.simulate.figures import Delay, Figures, compare
from provisioner.rollout.simulate.plot import draw_fleet
from provisioner.rollout.simulate.setup import DAY, POLICIES, SimulationQuestion, load_of, make_scenario
from provisioner.rollout.simulate.trace import read_trace

_HEADINGS = (
    "policy",
    "days",
    "to bound",
    "to reached",
    "interrupted",
    "lost GPU-h",
    "update GPU-h",
    "closed idle GPU-h",
    "extra idle GPU-h",
    "jobs later (mean, worst)",
    "by chance (mean, worst)",
)


class _Number(click.ParamType[float]):
    """A number between two others."""

    name = "number"

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not self._least <= number <= self._most:
            self.fail(f"{value!r} is no number from {self._least:g} to {self._most:g}", param, ctx)
        return number


class _Amount(click.ParamType[int | str]):
    """A count or a share."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value)
        number = text.removesuffix("%")
        if len(number) > 6 or not number.isascii() or not number.isdecimal():
            self.fail(f"{text[:32]!r} is neither a count nor a share: write 8 or 10%", param, ctx)
        if text.endswith("%"):
            if int(number) > 100:
                self.fail(f"{text!r} is more than all: write a share up to 100%", param, ctx)
            return f"{int(number)}%"
        return int(number)


@click.group("rollout")
def rollout() -> None:
    """Rollouts of images."""


@rollout.command("simulate")
@click.option("--trace", "trace_file", type=FILE, required=True, help="CSV: timestamp, duration (s), num_gpus.")
@click.option("--nodes", type=click.IntRange(1, 20_000), required=True, help="Servers of the pool.")
@click.option("--gpus", type=click.IntRange(1, 64), default=8, show_default=True, help="GPUs of each.")
@click.option(
    "--load",
    type=click.IntRange(1, 150),
    default=70,
    show_default=True,
    help="Percent of the GPUs that jobs use in the week before and after the begin; the trace is scaled to it.",
)
@click.option("--begin", type=_Number(0, 36_500), default=45.0, show_default=True, help="Day of the trace.")
@click.option("--longest", type=_Number(0.01, 3650), default=60.0, show_default=True, help="Days until it is given up.")
@click.option(
    "--attempt",
    type=_Number(1, 86_400),
    default=600.0,
    show_default=True,
    help="Seconds for which a server is out of use.",
)
@click.option("--max-parallel", type=_Amount(), default="10%", show_default=True, help="Servers on their way at once.")
@click.option("--canary", type=click.IntRange(0, 1000), default=1, show_default=True, help="Servers that go first.")
@click.option(
    "--soak",
    type=click.IntRange(0, LONGEST_SOAK_SECONDS),
    default=600,
    show_default=True,
    help="Seconds for which the others wait then.",
)
@click.option(
    "--stragglers-after",
    type=_Number(0, 3650),
    help="Days after which servers are closed to new jobs although some GPUs are free. Never if absent.",
)
@click.option(
    "--stragglers-at-once", type=_Amount(), default="2%", show_default=True, help="How many are closed so at once."
)
@click.option(
    "--deadline-after", type=_Number(0, 3650), help="Days after which jobs are warned and ended. Never if absent."
)
@click.option(
    "--minimum-run",
    type=_Number(0, 8760),
    default=0.0,
    show_default=True,
    help="Hours for which a job has run at least when the deadline ends it.",
)
@click.option(
    "--policy",
    "policies",
    type=click.Choice(tuple(POLICIES)),
    multiple=True,
    default=("provisioner",),
    show_default=True,
    help="Who decides; several are compared.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of what the scaling leaves to chance.")
@click.option("--svg", type=FILE, help="Draw the fleet over time into this file, for the first policy.")
def simulate_rollout(
    trace_file: Path,
    nodes: int,
    gpus: int,
    load: int,
    begin: float,
    longest: float,
    attempt: float,
    max_parallel: int | str,
    canary: int,
    soak: int,
    stragglers_after: float | None,
    stragglers_at_once: int | str,
    deadline_after: float | None,
    minimum_run: float,
    policies: tuple[str, ...],
    seed: int,
    svg: Path | None,
) -> None:
    """Simulate the rollout of an image over a cluster whose jobs come from a trace.

    The planner decides as it does for a real pool. Compared with what it does if stragglers are closed or no job is
    steered, and with idle-only, which reboots servers only when they run nothing.
    """
    if svg is not None and not svg.absolute().parent.is_dir():
        raise click.BadParameter(f"there is no folder {svg.absolute().parent}", param_hint="--svg")
    stragglers = None
    if stragglers_after is not None:
        stragglers = Stragglers(after_seconds=int(stragglers_after * DAY), max_closed=stragglers_at_once)
    deadline = None
    if deadline_after is not None:
        minimum = int(minimum_run * 3600)
        deadline = UpgradeDeadline(after_seconds=int(deadline_after * DAY), minimum_run_seconds=minimum)
    strategy = UpgradeStrategy(
        max_parallel=max_parallel,
        max_unavailable="100%",
        canary=Canary(count=canary, soak_seconds=soak),
        stragglers=stragglers,
        deadline=deadline,
    )
    question = SimulationQuestion(
        servers=nodes,
        gpus=gpus,
        load=load / 100,
        begins=begin,
        longest=longest,
        attempt=attempt,
        strategy=strategy,
        seed=seed,
    )
    with Progress() as progress:
        progress.begin(f"reading {trace_file}")
        scenario = make_scenario(read_trace(trace_file), question)
        progress.begin("simulating")
        found = compare(scenario, [POLICIES[name](scenario, strategy) for name in policies])
    printer.say(
        f"{quantity(nodes, 'server')} of {quantity(gpus, 'GPU')}; "
        f"jobs ask for {load_of(scenario.jobs, question):.0%} of them at the begin"
    )
    printer.show(table(_HEADINGS, [_row(figures) for figures in found], gap="  "))
    if late := [f"{figures.outcome.policy} {figures.not_started}" for figures in found if figures.not_started]:
        printer.say(f"jobs that had not started when the simulation ended, and count in no delay: {', '.join(late)}")
    if svg is not None:
        first = found[0].outcome
        end = scenario.longest if first.makespan is None else first.makespan
        svg.write_text(draw_fleet(f"{quantity(nodes, 'server')}, {first.policy}", nodes, first.samples, end))
        printer.say(f"drew {svg}")


def _row(figures: Figures) -> tuple[str, ...]:
    outcome = figures.outcome
    days = f"{outcome.makespan / DAY:.2f}" if outcome.makespan is not None else f"not done: {outcome.left} left"
    return (
        outcome.policy,
        days,
        _ratio(figures.to_bound),
        _ratio(figures.to_reached),
        str(outcome.interrupted),
        f"{outcome.lost / 3600:,.0f}",
        f"{outcome.unavoidable / 3600:,.0f}",
        f"{outcome.closed_idle / 3600:,.1f} ({figures.closed_share:.1%})",
        f"{outcome.extra / 3600:,.1f} ({figures.extra_share:.1%})",
        _delay(figures.delay),
        _delay(figures.by_chance),
    )


def _delay(delay: Delay) -> str:
    return f"{delay.mean:+.1f} s, {delay.worst / 3600:+.1f} h"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
