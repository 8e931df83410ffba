"""How the kubectl commands reach the cluster: by kubectl's own flags, which it does not hand to a plugin."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.meta import Resource
from provisioner.cli.options import kubeconfig_option, with_options
from provisioner.cluster.client import BUSY_SECONDS, Cluster

R = TypeVar("R", bound=Resource)

MANAGER: Final = "kubectl-provision"
"""Who writes what people ask for, as field manager, user agent, and component of Events."""
POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Which cluster, and as whom."""

    kubeconfig: Path | None
    context: str | None = None
    as_user: str | None = None
    as_groups: tuple[str, ...] = ()

    def open(self) -> Cluster:
        """The cluster. Raises: NeedsHuman if the kubeconfig is of no use. Sends nothing yet."""
        return Cluster.connect(
            self.kubeconfig,
            user_agent=MANAGER,
            context=self.context,
            as_user=self.as_user,
            as_groups=self.as_groups,
            busy_seconds=BUSY_SECONDS,
        )

    def find_namespace(self) -> str:
        """That of the kubeconfig's context, or of the pod in which this runs; `default` if neither names one."""
        if self.kubeconfig is None:
            return POD_NAMESPACE.read_text().strip() if POD_NAMESPACE.exists() else "default"
        from kubernetes import config

        read: Any = config.list_kube_config_contexts
        try:
            contexts, current = read(config_file=str(self.kubeconfig))
        except (config.ConfigException, OSError):  # what is wrong with it is told by who connects
            return "default"
        chosen = [each for each in contexts if each["name"] == self.context] if self.context else [current]
        found = chosen[0]["context"].get("namespace") if chosen else None
        return str(found or "default")


connection_options: Final = with_options(
    kubeconfig_option,
    click.option("--context", metavar="NAME", help="Context of the kubeconfig [its current one]."),
    click.option("--as", "as_user", metavar="USER", help="User to impersonate."),
    click.option("--as-group", "as_groups", multiple=True, metavar="GROUP", help="Group to impersonate."),
)
"""The command reads them with `connection_of`."""


def connection_of(options: dict[str, Any]) -> Connection:
    """The connection that the options of `connection_options` describe; they are taken out of `options`."""
    return Connection(
        kubeconfig=options.pop("kubeconfig", None),
        context=options.pop("context", None),
        as_user=options.pop("as_user", None),
        as_groups=tuple(options.pop("as_groups", ())),
    )


def find_named(cluster: Cluster, kind: type[R], name: str | None, *, namespace: str | None = None) -> R | None:
    """The object of that name; None if there is none, or none is named."""
    try:
        return cluster.read(kind, name, namespace=namespace) if name is not None else None
    except (NotFound, ValueError):
        return None
