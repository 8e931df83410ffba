"""`provisioner accept SERVER…` and `kubectl provision accept SERVER…`: let waiting machines boot."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api import NodePool, Rack, Server
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.schema import API_VERSION
from provisioner.cli import printer
from provisioner.cli.kubectl.connection import connection_of, connection_options
from provisioner.cluster.client import Cluster
from provisioner.cluster.leadership import read_no_leader
from provisioner.cluster.resources import of
from provisioner.inventory.accept import Acceptance, AcceptOptions, decide_acceptance

MANAGER = "provisioner-accept"


@click.command("accept", short_help="Let new servers boot that wait for acceptance.")
@click.argument("servers", nargs=-1, required=True, metavar="SERVER...")
@click.option("--pool", metavar="NAME", help="NodePool whose image the servers boot [the one that they have].")
@click.option("--rack", metavar="NAME", help="Rack in which they stand [the one of the subnet from which they asked].")
@click.option("--subnet", metavar="NAME", help="Subnet of the rack in which they boot.")
@click.option("--position", metavar="PLACE", help="Place in the rack, such as u07; with one server only.")
@click.option("--name", metavar="NAME", help="Name for a discovered machine, such as r01-u07; with one server only.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@connection_options
def accept(
    servers: tuple[str, ...],
    pool: str | None,
    rack: str | None,
    subnet: str | None,
    position: str | None,
    name: str | None,
    dry_run: bool,
    **options: Any,
) -> None:
    """Let servers boot that wait for acceptance; either all that are named, or none.

    See who waits: kubectl get servers --field-selector spec.acceptance=Pending
    """
    if len(servers) > 1 and (position or name):
        raise click.UsageError("--position and --name are for one server: accept them one by one")
    cluster = connection_of(options).open()
    wish = AcceptOptions(pool=pool, rack=rack, position=position, subnet=subnet, name=name)
    racks, pools, everyone = cluster.read_all(Rack), cluster.read_all(NodePool), cluster.read_all(Server)
    by_name = {server.name: server for server in everyone}
    unknown = [name for name in servers if name not in by_name]
    if unknown:
        raise Refused(f"there is no Server {', '.join(unknown)}", hint="kubectl get servers")
    decisions = [
        (by_name[server], decide_acceptance(by_name[server], wish, racks=racks, pools=pools, servers=everyone))
        for server in dict.fromkeys(servers)
    ]
    for server, decision in decisions:
        if not dry_run:
            _carry_out(cluster, server, decision)
        _show(decision, dry_run=dry_run)
    no_leader = read_no_leader(cluster, datetime.now(UTC))
    if no_leader is not None:
        printer.say(no_leader.sentence, err=True)


def _carry_out(cluster: Cluster, server: Server, decision: Acceptance) -> None:
    """Raises: Conflict if the server changed since it was read."""
    if decision.renamed:
        body = {"apiVersion": API_VERSION, "kind": "Server", "metadata": {"name": decision.name}, "spec": decision.spec}
        cluster.create(of(Server), body)
        cluster.delete(of(Server), server.name, uid=server.metadata.uid)
    elif decision.changes:
        patch = {"metadata": {"resourceVersion": server.metadata.resource_version}, "spec": decision.spec}
        cluster.patch(of(Server), server.name, patch, manager=MANAGER)


def _show(decision: Acceptance, *, dry_run: bool) -> None:
    done = "would be accepted" if dry_run else "accepted"
    printer.say(f"Server {decision.server} {done if decision.changes else 'was accepted already'}")
    for change in decision.changes:
        before = "(unset)" if change.before is None else change.before
        printer.say(f"  {change.field}: {before} -> {'(unset)' if change.after is None else change.after}")
    printer.say(f"  next: {decision.next_step}")
