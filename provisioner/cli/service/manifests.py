"""`provisioner manifests`: all that a cluster needs before the services start; `provisioner crds`: the kinds alone."""

from __future__ import annotations

import itertools
from importlib.resources import files
from typing import Any, Final

import click
import yaml

from provisioner.api.crd import all_crds, crds_yaml
from provisioner.cli.service.controller import NAMES

ACCOUNTS: Final = ("boot", "controller", *NAMES)
DATA: Final = (
    *("namespaces.yaml", "checks.yaml", "people.yaml", "requests.yaml", "nodes.yaml", "server_status.yaml"),
    *("node_limits.yaml", "boot_joins.yaml", "leases.yaml", "break_glass.yaml", "former.yaml"),
    *(f"accounts/{account}.yaml" for account in ACCOUNTS),
)
"""What holds for several comes first; then what each account has and is held to."""


def all_manifests() -> list[dict[str, Any]]:
    """CRDs, namespace, accounts, rights and admission policies, in the order in which they are applied."""
    data = files("provisioner.cli").joinpath("data")
    rights = [yaml.safe_load_all(data.joinpath(name).read_text()) for name in DATA]
    return [*all_crds(), *itertools.chain.from_iterable(rights)]


@click.command("manifests")
def manifests() -> None:
    """Print what to apply first: CRDs, accounts, rights. provisioner manifests | kubectl apply --server-side -f -"""
    click.echo(yaml.safe_dump_all(all_manifests(), sort_keys=False, width=120), nl=False)


@click.command("crds")
def crds() -> None:
    """Print the CustomResourceDefinitions as YAML: provisioner crds | kubectl apply --server-side -f -"""
    click.echo(crds_yaml(), nl=False)
