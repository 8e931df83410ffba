"""`provisioner image keys`: which key signed what, and who still needs it. See docs/rotation.md."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.cli import printer
from provisioner.cli.options import kubeconfig_option
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.image.finished.sign import read_public_keys
from provisioner.image.retention.signers import SignedBy, find_signers

_KINDS = (Server, NodePool, Maintenance)


@click.command("keys")
@click.option(
    "--signed-by",
    "key_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Public key, or file of several: those alone, with the names of what boots, has booted or is to boot them.",
)
@kubeconfig_option
def keys(key_file: Path | None, kubeconfig: Path | None) -> None:
    """List Images by the key that signed them, and how many servers and pools name each.

    With --signed-by it exits with 1 while anything names an Image of that key: it must not be taken away yet.
    """
    cluster = Cluster.connect(kubeconfig, user_agent="provisioner-image")
    others = [item for kind in _KINDS for item in cluster.list(of(kind)).items]
    found = find_signers(cluster.list(of(Image)).items, others)
    if key_file is None:
        _show(found)
        return
    wanted = {key.number.hex() for key in read_public_keys(key_file).keys}
    found = [entry for entry in found if entry.key in wanted]
    _show(found)
    for entry in found:
        for kind, names in sorted(entry.named_by.items()):
            printer.say(f"{entry.image}: {kind} {', '.join(sorted(names))}")
    if any(entry.named_by for entry in found):
        raise click.exceptions.Exit(1)


def _show(found: list[SignedBy]) -> None:
    printer.say(f"{'KEY':<18}{'SERVERS':>8}{'POOLS':>7}{'MAINTENANCES':>14}  IMAGE")
    for entry in found:
        counts = [entry.count(kind.KIND.kind) for kind in _KINDS]
        printer.say(f"{entry.key:<18}{counts[0]:>8}{counts[1]:>7}{counts[2]:>14}  {entry.image}")
