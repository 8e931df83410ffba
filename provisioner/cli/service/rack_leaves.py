"""`provisioner rack export` and `provisioner rack retire`: a rack leaves this cluster. See docs/retire-and-move.md."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click
import yaml

from provisioner.api import AddressBlock, Maintenance, Rack, Server, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.wording import quantity
from provisioner.cli import printer
from provisioner.cli.options import kubeconfig_option
from provisioner.cluster.client import BUSY_SECONDS, Cluster
from provisioner.cluster.resources import BMC_SECRETS, NODES, SECRETS, ResourceType, of
from provisioner.cluster.source import is_true_in
from provisioner.inventory.retire import Deletion, RackContents, claims_of, deletions, obstacles, portable

_TYPES: Final[dict[str, ResourceType]] = {
    "Maintenance": of(Maintenance),
    "Node": NODES,
    "Secret": SECRETS,
    "Server": of(Server),
    "Rack": of(Rack),
}
MOST_LINES: Final = 20


@click.command("export")
@click.argument("name", metavar="RACK")
@kubeconfig_option
def export(name: str, kubeconfig: Path | None) -> None:
    """Print RACK and its servers as another cluster takes them, for kubectl apply --server-side -f - there.

    What is wanted of them, without what was observed. Each server's address is pinned, and all are Pending: they boot
    there once they are accepted. NodePools, Images and Secrets are not printed: the last lines name what it needs.
    """
    found = _read(_connect(kubeconfig), name)
    printer.show(yaml.safe_dump_all(portable(found), sort_keys=False, width=120, explicit_start=True))
    bmcs = [server.spec.bmc.credentials_name for server in found.servers if server.spec.bmc is not None]
    pools = [server.spec.node_pool_ref for server in found.servers]
    for what, names in (("NodePools", pools), (f"Secrets of {BMC_SECRETS}", bmcs)):
        printer.say(f"# {what} that it names: {', '.join(sorted({each for each in names if each})) or 'none'}")


@click.command("retire")
@click.argument("name", metavar="RACK")
@click.option("--dry-run", is_flag=True, help="Say what keeps the rack, or what would be deleted, and delete nothing.")
@click.option(
    "--wait", "wait_seconds", default=120.0, show_default=True, help="Seconds for what controllers have to let go of."
)
@kubeconfig_option
def retire(name: str, dry_run: bool, wait_seconds: float, kubeconfig: Path | None) -> None:
    """Delete RACK with its Servers, their Nodes, Maintenances, addresses, and the Secrets of their BMCs.

    Only once every server is off, has nothing under way and no tenant: what keeps the rack is listed. Run again, it
    goes on where it was interrupted. Exits with 1 if something is left after --wait.
    """
    cluster = _connect(kubeconfig)
    found = _read(cluster, name)
    if kept := obstacles(found):
        shown = "\n  ".join([*kept[:MOST_LINES], *([f"… {len(kept) - MOST_LINES} more"] * (len(kept) > MOST_LINES))])
        raise Refused(f"rack {name} is in use:\n  {shown}\n", hint="see to these first, then run it again")
    steps = deletions(found)
    if dry_run:
        for step in steps:
            printer.say(f"- {step.kind} {step.name}")
        printer.say(f"dry run: {quantity(len(steps), 'object')} would be deleted; nothing was")
        return
    for step in steps:
        namespace = BMC_SECRETS if step.kind == "Secret" else None
        cluster.delete(_TYPES[step.kind], step.name, namespace=namespace)
        printer.say(f"- {step.kind} {step.name}")
    left = _left(cluster, steps)
    until = time.monotonic() + wait_seconds
    while left and time.monotonic() < until:
        time.sleep(min(1.0, wait_seconds / 10))
        left = _left(cluster, steps)
    if left:
        for each in left[:MOST_LINES]:
            printer.say(f"left: {each}", err=True)
        raise Refused(
            f"{quantity(len(left), 'object')} of rack {name} left",
            hint="see whether the controllers run, and run it again",
        )
    printer.say(f"rack {name} is gone: {quantity(len(steps), 'object')} deleted, nothing left")


def _connect(kubeconfig: Path | None) -> Cluster:
    return Cluster.connect(kubeconfig, user_agent="provisioner-rack", busy_seconds=BUSY_SECONDS)


def _read(cluster: Cluster, name: str) -> RackContents:
    """Raises: NotFound without the rack."""
    rack = cluster.read(Rack, name)
    servers = cluster.read_all(Server)
    attached = {}
    for item in cluster.list(of(VPCAttachment)).items:
        metadata = item["metadata"]
        attached[str(item["spec"]["serverRef"])] = f"-n {metadata['namespace']} {metadata['name']}"
    nodes = cluster.list(NODES).items
    # A DPU goes before the server that it sits in, as names of Servers: r01-u01-dpu names r01-u01.
    own = sorted((s for s in servers if s.spec.rack_ref == name), key=lambda s: (s.spec.dpu is None, s.name))
    return RackContents(
        rack=rack,
        servers=tuple(own),
        others=tuple(server for server in servers if server.spec.rack_ref != name),
        maintenances=tuple(cluster.read_all(Maintenance)),
        nodes=frozenset(node["metadata"]["name"] for node in nodes),
        attached=attached,
        ready=frozenset(node["metadata"]["name"] for node in nodes if is_true_in(node, "Ready")),
    )


def _left(cluster: Cluster, steps: list[Deletion]) -> list[str]:
    """What is there yet of what was deleted, and what was claimed for it."""
    left = []
    for kind, type_ in _TYPES.items():
        names = {step.name for step in steps if step.kind == kind}
        if kind == "Secret":
            left += [f"Secret {each}" for each in names if cluster.find(type_, each, namespace=BMC_SECRETS) is not None]
        elif names:
            there = {item["metadata"]["name"] for item in cluster.list(type_, trim=_name).items}
            left += [f"{kind} {each}" for each in sorted(names & there)]
    servers = {step.name for step in steps if step.kind == "Server"}
    blocks = [decode(AddressBlock, item) for item in cluster.list(of(AddressBlock)).items]
    return left + [f"claim of {each}" for each in claims_of(servers, blocks)]


def _name(item: dict[str, object]) -> dict[str, object]:
    return {"metadata": item["metadata"]}
