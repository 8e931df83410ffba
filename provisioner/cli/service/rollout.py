"""`provisioner rollout simulate`: what a rollout would take and cost, asked of a trace before it is done."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.api.upgrade_strategy import Canary, UpgradeStrategy
from provisioner.cli.progress import Progress
from provisioner.rollout.simulate.figures import Figures, compare
from provisioner.rollout.simulate.plot import draw_fleet
from provisioner.rollout.simulate.setup import DAY, POLICY_NAMES, Question, make_policy, make_scenario
from provisioner.rollout.simulate.trace import read_trace

_FILE = click.Path(dir_okay=False, path_type=Path)
_HEADINGS = (
    "policy",
    "days",
    "to bound",
    "to reached",
    "interrupted",
    "lost GPU-h",
    "update GPU-h",
    "extra idle GPU-h",
    "jobs later (mean, worst)",
)


@click.group("rollout")
def rollout() -> None:
    """Rollouts of images."""


@rollout.command("simulate")
@click.option("--trace", "trace_file", type=_FILE, required=True, help="CSV: timestamp, duration (s), num_gpus.")
@click.option("--nodes", type=click.IntRange(1, 20_000), required=True, help="Servers of the pool.")
@click.option("--gpus", type=click.IntRange(1, 64), default=8, show_default=True, help="GPUs of each.")
@click.option(
    "--load",
    type=click.IntRange(1, 150),
    default=70,
    show_default=True,
    help="Percent of the GPUs that jobs use in the week before and after the begin; the trace is scaled to it.",
)
@click.option("--begin", type=float, default=45.0, show_default=True, help="Day of the trace on which it begins.")
@click.option("--longest", type=float, default=60.0, show_default=True, help="Days after which it is given up.")
@click.option(
    "--attempt", type=float, default=600.0, show_default=True, help="Seconds for which a server is out of use."
)
@click.option("--max-parallel", default="10%", show_default=True, help="As spec.upgradeStrategy.maxParallel.")
@click.option("--canary", type=int, default=1, show_default=True, help="As spec.upgradeStrategy.canary.count.")
@click.option("--soak", type=int, default=600, show_default=True, help="Seconds, as canary.soakSeconds.")
@click.option("--idle-percent", type=int, default=5, show_default=True, help="As spec.upgradeStrategy.idlePercent.")
@click.option(
    "--policy",
    "policies",
    type=click.Choice(POLICY_NAMES),
    multiple=True,
    default=("provisioner",),
    show_default=True,
    help="Who decides; several are compared.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of what the scaling leaves to chance.")
@click.option("--svg", type=_FILE, help="Draw the fleet over time into this file, for the first policy.")
def simulate_rollout(
    trace_file: Path,
    nodes: int,
    gpus: int,
    load: int,
    begin: float,
    longest: float,
    attempt: float,
    max_parallel: str,
    canary: int,
    soak: int,
    idle_percent: int,
    policies: tuple[str, ...],
    seed: int,
    svg: Path | None,
) -> None:
    """Simulate the rollout of an image over a cluster whose jobs come from a trace.

    The planner decides as it does for a real pool. Compared with peers as their documents describe them: idle-first
    (SUNK), in-order (k8s-operator-libs), kured with and without a blocking selector.
    """
    strategy = UpgradeStrategy(
        max_parallel=_amount(max_parallel),
        max_unavailable="100%",
        canary=Canary(count=canary, soak_seconds=soak),
        idle_percent=idle_percent,
    )
    question = Question(
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
        found = compare(scenario, [make_policy(name, scenario, strategy) for name in policies])
    click.echo(table(found))
    if svg is not None:
        first = found[0].outcome
        end = scenario.longest if first.makespan is None else first.makespan
        svg.write_text(draw_fleet(f"{nodes} servers, {first.policy}", nodes, first.samples, end))
        click.echo(f"drew {svg}")


def table(found: list[Figures]) -> str:
    """The figures in columns."""
    rows = [_HEADINGS, *(_row(figures) for figures in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


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
        f"{outcome.extra / 3600:,.1f} ({figures.extra_share:.1%})",
        f"{figures.delay:+.1f} s, {figures.worst / 3600:+.1f} h",
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _amount(text: str) -> int | str:
    """A count or a share. Raises: click.BadParameter."""
    number = text.removesuffix("%")
    if not number.isdecimal() or (text.endswith("%") and int(number) > 100) or len(number) > 6:
        raise click.BadParameter(
            f"{text!r} is neither a count nor a share: write 8 or 10%", param_hint="--max-parallel"
        )
    return text if text.endswith("%") else int(number)
