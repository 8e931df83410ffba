"""`kubectl provision status`: a line for each node, with what it waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import click

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.machinery.wording import ago, clip
from provisioner.api.nodes.maintenance import holding_maintenance
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand, target_options
from provisioner.cli.kubectl.connection import connection_of
from provisioner.cli.kubectl.printing import Cell, output_option, print_in_form, table
from provisioner.cli.kubectl.targets import ServerTarget, find_targets, selection_of
from provisioner.cli.why.maintenance import wait_words
from provisioner.cluster.leadership import NoLeader, read_no_leader
from provisioner.rules.nodes import read_node
from provisioner.rules.pool_of_server import current_pool_name

HEADER = ("NODE", "LIFECYCLE", "READY", "IMAGE", "BOOT", "MAINTENANCE", "WAITS-FOR")
WIDE_HEADER = (
    "NODE", "POOL", "LIFECYCLE", "READY", "IMAGE", "BOOT", "POWER", "ADDRESS", "MAINTENANCE", "POLICY", "SINCE",
    "NEXT", "WAITS-FOR",
)  # fmt: skip
WAITS_LENGTH = 70


@click.command("status", cls=KubectlCommand, short_help="Show nodes, a line each.")
@target_options
@output_option("json", "yaml", "wide", "name")
def status(**options: Any) -> None:
    """Show nodes: where each is in its life, what it runs, what is done to it, and what that waits for.

    Below them the rollouts under way in their pools. Without names all nodes.

    \b
    Examples:
      kubectl provision status
      kubectl provision status --pool gpu -o wide
      kubectl provision status r01-u07 -o json
    """
    cluster = connection_of(options).open()
    wish = selection_of(options)
    if not (wish.names or wish.selector or wish.pool):
        wish = replace(wish, everything=True)
    targets = find_targets(cluster, wish, for_requests=False)
    maintenances, now = cluster.read_all(Maintenance), datetime.now(UTC)
    no_leader = read_no_leader(cluster, now)
    form = options["output"]
    if print_in_form(
        form,
        lambda: [_as_json(target, maintenances, no_leader) for target in targets],
        [f"node/{target.name}" for target in targets],
    ):
        return
    if not targets:
        selected = wish.selector or wish.pool
        words = "no server is selected" if selected else "no servers: provisioner rack register registers some"
        printer.say(words, err=True)
    else:
        from provisioner.cli.rollout.screen import render_under_way

        printer.show(render_status(targets, maintenances, now, wide=form == "wide", no_leader=no_leader))
        names = {current_pool_name(target.server) for target in targets}
        pools = [pool for pool in cluster.read_all(NodePool) if pool.name in names]
        if under_way := render_under_way(pools, now):
            printer.show(f"\n{under_way}")
        if no_leader is not None:
            printer.say(no_leader.sentence, err=True)


def render_status(
    targets: Sequence[ServerTarget],
    maintenances: Sequence[Maintenance],
    now: datetime,
    *,
    wide: bool = False,
    no_leader: NoLeader | None = None,
) -> str:
    """The table. Pure."""
    by_server: dict[str, list[Maintenance]] = {}
    for m in maintenances:
        by_server.setdefault(m.spec.server_ref, []).append(m)
    header, rows = WIDE_HEADER if wide else HEADER, []
    for target in targets:
        current = holding_maintenance(by_server.get(target.name, ()), target.name)
        waits = _waits_for(target.server, current, no_leader)
        cells = _cells(target, current, waits if wide else clip(waits, WAITS_LENGTH), now)
        rows.append([cells[column] for column in header])
    return table(header, rows)


def _waits_for(server: Server, current: Maintenance | None, no_leader: NoLeader | None) -> str:
    words = wait_words(server, current)
    if no_leader is None or not (words or current is not None):
        return words
    return f"{no_leader.words}; {words}" if words else no_leader.words


def _cells(target: ServerTarget, current: Maintenance | None, waits: str, now: datetime) -> dict[str, Cell]:
    server, s = target.server, target.server.status
    since = current.status.started_time or current.metadata.creation_timestamp if current else None
    return {
        "NODE": target.name,
        "POOL": current_pool_name(server),
        "LIFECYCLE": s.lifecycle,
        "READY": _ready(target.node),
        "IMAGE": s.image_ref,
        "BOOT": s.boot_stage,
        "POWER": s.power.state if s.power else None,
        "ADDRESS": s.address,
        "MAINTENANCE": _maintenance(current),
        "POLICY": current.status.policy if current else None,
        "SINCE": ago(parse_time(since), now) if since else None,
        "NEXT": current.status.next_step if current else None,
        "WAITS-FOR": waits,
    }


def _ready(node: Mapping[str, Any] | None) -> str | None:
    view = read_node(node)
    if view is None:
        return None
    ready = view.condition("Ready")
    words = ready.status if ready is not None else "Unknown"
    return f"{words},cordoned" if view.unschedulable else words


def _maintenance(current: Maintenance | None) -> str | None:
    if current is None:
        return None
    action = current.status.action or (current.spec.requestors[0].action if current.spec.requestors else "")
    return f"{action}/{current.status.phase or 'New'}"


def _as_json(target: ServerTarget, maintenances: Sequence[Maintenance], no_leader: NoLeader | None) -> dict[str, Any]:
    """For programs: the objects as they are, and which Maintenance holds the server."""
    own = [m for m in maintenances if m.spec.server_ref == target.name]
    current = holding_maintenance(own, target.name)
    return {
        "apiVersion": API_VERSION,
        "kind": "NodeReport",
        "metadata": {"name": target.name},
        "lifecycle": target.server.status.lifecycle,
        "ready": _ready(target.node),
        "waitsFor": _waits_for(target.server, current, no_leader),
        "server": encode(target.server),
        "maintenance": encode(current) if current else None,
    }
