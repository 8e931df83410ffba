"""`provisioner image gc`: which images may go, and their going."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli import printer
from provisioner.cli.options import FOLDER, kubeconfig_option
from provisioner.cli.service.registry_options import access_of, opened, registry_options

if TYPE_CHECKING:
    from provisioner.image.retention.collect import CollectionPlan


@click.command()
@click.option("--store", type=FOLDER, required=True, help="Image store, as `provisioner boot` serves it.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and why each other image stays; delete nothing.")
@click.option(
    "--keep",
    default=3,
    show_default=True,
    type=click.IntRange(min=0),
    help="So many stay of each recipe, distribution and architecture: the newest, in use or not.",
)
@click.option(
    "--grace-hours",
    default=24.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="What is younger stays; what lies in the store without an Image object, too.",
)
@click.option(
    "--registry",
    metavar="oci://HOST/REPOSITORY",
    help="Delete images that go there as well. Only where no other cluster uses that repository.",
)
@registry_options
@kubeconfig_option
def gc(
    store: Path,
    dry_run: bool,
    keep: int,
    grace_hours: float,
    registry: str | None,
    kubeconfig: Path | None,
    **options: Any,
) -> None:
    """Delete images that nobody uses: Image object, folder, and parts that no other image has.

    An image stays that any Server, NodePool, Maintenance or Node names, that is young, one of the last of its kind, or
    labelled provisioner.dev/keep. Nothing is deleted while the cluster does not answer every question. Run it on each
    boot host: the first one deletes the Image objects, the others then what they have of them.
    """
    from provisioner.cluster.client import BUSY_SECONDS, Cluster
    from provisioner.image.registry.reference import parse_repository
    from provisioner.image.retention.collect import collect, make_plan
    from provisioner.image.retention.decide import RetentionRules

    rules = RetentionRules(keep=keep, grace=timedelta(hours=grace_hours))
    cluster = Cluster.connect(kubeconfig, busy_seconds=BUSY_SECONDS)
    if dry_run:
        plan = make_plan(cluster, store, rules, datetime.now(UTC))
        _show(plan)
        printer.say(f"nothing was deleted (--dry-run); {plan.freed_bytes / 1e6:.1f} MB would be free")
        return
    with contextlib.ExitStack() as stack:
        client = (
            stack.enter_context(opened(access_of(parse_repository(registry), **options)))
            if registry is not None
            else None
        )
        collect(cluster, store, rules, lambda: datetime.now(UTC), registry=client, show=_show, tell=printer.say)
    printer.say("done")


def _show(plan: CollectionPlan) -> None:
    for line in lines(plan):
        printer.say(line)


def lines(plan: CollectionPlan) -> Iterator[str]:
    """What becomes of each image, and why, a line each."""
    width = max((len(fate.label) for fate in plan.fates), default=5)
    for fate in plan.fates:
        yield f"{'goes ' if fate.goes else 'stays'}  {fate.label:<{width}}  {fate.why}"
    yield from plan.notes
    going = sum(fate.goes for fate in plan.fates)
    yield f"{going} of {len(plan.fates)} images go"
