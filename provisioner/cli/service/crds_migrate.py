"""`provisioner crds migrate`: every object once more, in the version that is stored now. See docs/api-versions.md."""

from __future__ import annotations

import time
from pathlib import Path

import click

from provisioner.api.crd import all_crds
from provisioner.api.machinery.wording import quantity
from provisioner.cli import printer
from provisioner.cli import progress as shown
from provisioner.cli.options import kubeconfig_option
from provisioner.cluster.client import BUSY_SECONDS, Cluster
from provisioner.cluster.resources import CRDS
from provisioner.cluster.storage_migration import (
    MigrationProgress,
    migrate,
    needs_migration,
    read_begun,
    storage_version,
    stored_versions,
)


@click.command("migrate")
@click.argument("names", nargs=-1, metavar="[CRD]...")
@click.option("--dry-run", is_flag=True, help="Say what is stored in which version, and write nothing.")
@click.option(
    "--settle",
    "settle_seconds",
    type=click.FloatRange(0, 600),
    default=30.0,
    show_default=True,
    help="Seconds that API servers may take to see another storage version; waited once, before the first object.",
)
@click.option(
    "--per-second",
    type=click.FloatRange(0.1, 1000),
    default=50.0,
    show_default=True,
    help="Objects that are written in a second at most.",
)
@kubeconfig_option
def migrate_command(
    names: tuple[str, ...], dry_run: bool, settle_seconds: float, per_second: float, kubeconfig: Path | None
) -> None:
    """Rewrite every object in the version that its kind stores now, then say so in the CRD's status.

    All kinds of the project, or those of the CRDs that are named, such as servers.provisioner.dev. Nothing of an object
    changes but its resourceVersion. It may be interrupted, and goes on where it was when it is run again. Afterwards a
    release without the older version can be applied.
    """
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-migrate", busy_seconds=BUSY_SECONDS)
    for name in names or [crd["metadata"]["name"] for crd in all_crds()]:
        crd = cluster.get(CRDS, name)
        if not needs_migration(crd):
            printer.say(f"{name}: stored as {storage_version(crd)} alone")
            continue
        if dry_run:
            begun = " (begun)" if read_begun(crd) else ""
            stored = ", ".join(stored_versions(crd))
            printer.say(f"{name}: stored as {stored}; to be written as {storage_version(crd)}{begun}")
            continue
        with shown.Progress() as bar:
            bar.begin(f"{name}: waiting until every API server stores {storage_version(crd)}")
            done = migrate(
                cluster,
                name,
                settle_seconds=settle_seconds,
                pause_seconds=1 / per_second,
                sleep=time.sleep,
                report=_Bar(bar),
            )
        printer.say(
            f"{name}: {quantity(done.written, 'object')} written as {done.version}, "
            f"{done.others_wrote} by others meanwhile, {done.gone} gone"
        )


class _Bar:
    def __init__(self, bar: shown.Progress) -> None:
        self._bar, self._begun = bar, False

    def __call__(self, progress: MigrationProgress) -> None:
        if not self._begun:
            self._begun = True
            self._bar.begin(f"{progress.crd}: writing as {progress.version}", progress.total)
        self._bar.advance()
