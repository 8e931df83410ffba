"""`provisioner restore review` and `provisioner restore trust`: what a person sees to after etcd was restored."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cli import printer
from provisioner.cli.options import kubeconfig_option
from provisioner.cli.restore.review import Past, ReviewFinding, denied_credentials, review
from provisioner.cluster.client import BUSY_SECONDS, Cluster, Object
from provisioner.cluster.resources import CSRS, LEASES, NODE_LEASES, NODES, SECRETS, of
from provisioner.join.certificates.request import trim_request
from provisioner.join.nodes.node_object import trim_node
from provisioner.join.tokens.mint import SERVER_LABEL, TOKEN_NAMESPACE
from provisioner.rules.liveness import trim_lease

MOST_LINES = 20
MOST_CREDENTIALS = 2
"""As many as the approver keeps on record."""
MANAGER = "provisioner-restore"


@click.group("restore")
def restore() -> None:
    """After etcd was restored from a snapshot: see what is from the past, before the controllers run again."""


@restore.command("review")
@click.option("--all", "everything", is_flag=True, help=f"Every line; without it, {MOST_LINES} of each kind.")
@kubeconfig_option
def review_command(everything: bool, kubeconfig: Path | None) -> None:
    """Say what the restored state would do that was right in the past only, and what to do about it. Writes nothing.

    Exits with 0 if there is nothing to see to, 1 otherwise.
    """
    findings = review(_read(_connect(kubeconfig)), datetime.now(UTC))
    for finding in findings:
        printer.show(_shown(finding, None if everything else MOST_LINES))
    if findings:
        raise click.exceptions.Exit(1)
    printer.say("nothing of the past is left to see to")


@restore.command("trust")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@kubeconfig_option
def trust(nodes: tuple[str, ...], kubeconfig: Path | None) -> None:
    """Put the certificate on record by which each NODE asked for a renewal, and was denied it.

    A certificate that was renewed after the snapshot is not on record any more. What asks with it proves that it is
    that Node, of this boot or an earlier one: name Nodes that you know to run, and reboot the others. The kubelet asks
    again by itself.
    """
    cluster = _connect(kubeconfig)
    denied = denied_credentials(cluster.list(CSRS, trim=trim_request).items)
    for name in nodes:
        if name not in denied:
            raise NeedsHuman(
                f"Node {name} has not been denied a renewal for a certificate that is not on record",
                hint="provisioner restore review lists those that have",
            )
        server = cluster.read(Server, name)
        known = server.status.join.credentials if server.status.join is not None else ()
        if denied[name] not in known:
            metadata = {"resourceVersion": server.metadata.resource_version}
            credentials = [*known, denied[name]][-MOST_CREDENTIALS:]
            body = {"metadata": metadata, "status": {"join": {"credentials": credentials}}}
            cluster.patch(of(Server), name, body, subresource="status", manager=MANAGER)
        printer.say(f"{name}: {denied[name]} is on record")


def _connect(kubeconfig: Path | None) -> Cluster:
    return Cluster.connect(kubeconfig, user_agent="provisioner-restore", busy_seconds=BUSY_SECONDS)


def _read(cluster: Cluster) -> Past:
    def by_name(items: list[Object]) -> dict[str, Object]:
        return {item["metadata"]["name"]: item for item in items}

    tokens = cluster.list(SECRETS, namespace=TOKEN_NAMESPACE, label_selector=SERVER_LABEL, trim=_metadata)
    return Past(
        servers=cluster.read_all(Server),
        pools=cluster.read_all(NodePool),
        maintenances=cluster.read_all(Maintenance),
        nodes=by_name(cluster.list(NODES, trim=trim_node).items),
        leases=by_name(cluster.list(LEASES, namespace=NODE_LEASES, trim=trim_lease).items),
        tokens=tokens.items,
        requests=cluster.list(CSRS, trim=trim_request).items,
    )


def _metadata(secret: Object) -> Object:
    """Not what is secret in it."""
    return {"metadata": secret["metadata"]}


def _shown(finding: ReviewFinding, most: int | None) -> str:
    lines = [f"{len(finding.lines)} {finding.title}", *(f"    {line}" for line in finding.lines[:most])]
    if most is not None and len(finding.lines) > most:
        lines.append(f"    … {len(finding.lines) - most} more: --all")
    return "\n".join([*lines, f"  try: {finding.remedy}", ""])
