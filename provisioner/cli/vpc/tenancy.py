"""Where a command works: one namespace, with the rights that a tenant has there."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import click

from provisioner.cli.kubectl.connection import connection_of, connection_options
from provisioner.cli.kubectl.failing import hinting_at
from provisioner.cli.options import with_options
from provisioner.cluster.client import Cluster

VIEW: Final = "view"
EDIT: Final = "edit"


@dataclass(frozen=True, kw_only=True)
class Tenancy:
    """A namespace of a cluster."""

    cluster: Cluster
    namespace: str


tenancy_options: Final = with_options(
    click.option(
        "-n", "--namespace", metavar="NAMESPACE", help="Namespace of the tenant [that of the kubeconfig's context]."
    ),
    connection_options,
)
"""The command reads them with `tenancy_of`."""


def tenancy_of(options: dict[str, Any]) -> Tenancy:
    """What the options of `tenancy_options` describe; they are taken out of `options`."""
    namespace, connection = options.pop("namespace", None), connection_of(options)
    return Tenancy(cluster=connection.open(), namespace=namespace or connection.find_namespace())


def needing_in(namespace: str, role: str) -> AbstractContextManager[None]:
    """Around what `role` of Kubernetes, bound in `namespace`, allows. Raises: Refused that names it."""
    return hinting_at(
        f"name your own namespace with -n, or have an administrator give you the role {role} there: "
        f"kubectl -n {namespace} create rolebinding NAME --clusterrole={role} --user=YOU"
    )
