"""`provisioner manifests`: all that a cluster needs before the services start; `provisioner crds`: the kinds alone."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

import click
import yaml

from provisioner.api import Server
from provisioner.api.crd import all_crds, crds_yaml
from provisioner.cli import printer
from provisioner.cli.service.controller import NAMES
from provisioner.cli.service.crds_migrate import migrate_command
from provisioner.rules.ownership import parts_by_account

ACCOUNTS: Final = ("boot", "controller", "web", "authorizer", *NAMES)
DATA: Final = (
    *("namespaces.yaml", "checks.yaml", "people.yaml", "requests.yaml", "nodes.yaml", "server_status.yaml"),
    *("node_limits.yaml", "boot_joins.yaml", "leases.yaml", "credentials.yaml", "break_glass.yaml"),
    *("traces.yaml", "attestation.yaml", "former.yaml"),
    *(f"accounts/{account}.yaml" for account in ACCOUNTS),
)
"""What holds for several comes first; then what each account has and is held to."""


def all_manifests() -> list[dict[str, Any]]:
    """CRDs, namespace, accounts, rights and admission policies, in the order in which they are applied."""
    return [*all_crds(), *itertools.chain.from_iterable(yaml.safe_load_all(read_data(name)) for name in DATA)]


def read_data(name: str) -> str:
    """One file of DATA; in place of OWNED_PARTS what the services' accounts own of a Server's status, a map in CEL."""
    text = files("provisioner.cli").joinpath("data", name).read_text()
    return text.replace("OWNED_PARTS", f"{{\n{_owned_parts()}\n        }}")


def _owned_parts() -> str:
    wrap = textwrap.TextWrapper(120, initial_indent=" " * 10, subsequent_indent=" " * 12, break_on_hyphens=False)
    entries = (f"'{account}': [{', '.join(map(repr, parts))}]" for account, parts in parts_by_account(Server).items())
    # A word such as 'condition Ready' stays in one line.
    return ",\n".join(wrap.fill(each.replace("condition ", "condition\0")).replace("\0", " ") for each in entries)


def names_alone(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What names the object. Who applies it, and applied more before, owns none of the object's fields any more."""
    metadata = {key: value for key, value in manifest["metadata"].items() if key in ("name", "namespace")}
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": metadata}


@click.command("manifests")
@click.option(
    "--names-only",
    is_flag=True,
    help="Names, and nothing in them: applied once Helm has taken the objects over, so that kubectl owns no field of "
    "theirs any more.",
)
def manifests(names_only: bool) -> None:
    """Print what to apply first: CRDs, accounts, rights. provisioner manifests | kubectl apply --server-side -f -"""
    shown = [names_alone(each) for each in all_manifests()] if names_only else all_manifests()
    printer.show(yaml.safe_dump_all(shown, sort_keys=False, width=120))


@click.group("crds", invoke_without_command=True)
@click.pass_context
def crds(context: click.Context) -> None:
    """Print the CustomResourceDefinitions as YAML: provisioner crds | kubectl apply --server-side -f -"""
    if context.invoked_subcommand is None:
        printer.show(crds_yaml())


crds.add_command(migrate_command)
