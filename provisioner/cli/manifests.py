"""`provisioner manifests`: everything that a cluster needs before the services start."""

from __future__ import annotations

from importlib.resources import files

import click

from provisioner.api.crd import crds_yaml


def manifests_yaml() -> str:
    """CRDs, namespace, accounts, rights and admission policies as one YAML stream."""
    rights = files("provisioner.cli").joinpath("data/rbac.yaml").read_text()
    return crds_yaml() + "---\n" + rights


@click.command("manifests")
def manifests() -> None:
    """Print what to apply first: CRDs, accounts, rights. provisioner manifests | kubectl apply --server-side -f -"""
    click.echo(manifests_yaml(), nl=False)
