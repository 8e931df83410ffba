"""`provisioner crds`: the CustomResourceDefinitions, for `kubectl apply -f -`."""

from __future__ import annotations

import click

from provisioner.api.crd import crds_yaml


@click.command("crds")
def crds() -> None:
    """Print the CustomResourceDefinitions as YAML: provisioner crds | kubectl apply --server-side -f -"""
    click.echo(crds_yaml(), nl=False)
