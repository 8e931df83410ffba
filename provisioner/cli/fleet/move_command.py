"""`kubectl provision move NODE… --to POOL`: the wish that servers be in another NodePool, written into their specs."""

from __future__ import annotations

from typing import Any

import click

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.wording import some
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import (
    KubectlCommand,
    confirm,
    dry_run_note,
    dry_run_option,
    target_options,
    yes_option,
)
from provisioner.cli.kubectl.completion import complete_pool
from provisioner.cli.kubectl.connection import MANAGER, connection_of, find_named
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.targets import ServerTarget, find_targets, selection_of
from provisioner.cli.rollout.pool_view import EDITOR, needing
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.rules.assigned_image import released_image
from provisioner.rules.pool_of_server import current_pool_name


@click.command("move", cls=KubectlCommand, short_help="Move servers to another NodePool, as their jobs end.")
@click.option("--to", "goal", metavar="POOL", required=True, help="NodePool to be in.", shell_complete=complete_pool)
@yes_option
@dry_run_option
@target_options
def move(**options: Any) -> None:
    """Move servers to another NodePool: their spec.nodePoolRef is set, and they follow as their jobs end.

    No job is interrupted. A server is rebooted into the image of the other pool, as that pool's upgradeStrategy lets
    it: its caps, its windows, and its canary if nobody was in use with that image there. Who thinks better of it moves
    the server back: before its turn has come nothing is rebooted.

    \b
    Examples:
      kubectl provision move r01-u07 r01-u08 --to slurm
      kubectl provision move -l example.com/rack=r01 --to kubernetes
    """
    wish = selection_of(options)
    goal, yes, dry_run = options.pop("goal"), options.pop("yes"), options.pop("dry_run")
    cluster = connection_of(options).open()
    targets = find_targets(cluster, wish, for_requests=False)
    pool = check_move(cluster, goal, [target.server for target in targets])
    if dry_run == "none":
        confirm(targets, f"move to NodePool {goal}", yes=yes, everything=wish.everything)
    for target in targets:
        _write(cluster, target, goal, dry_run=True)
    for target in targets:
        if dry_run == "none":
            _write(cluster, target, goal)
        printer.say(f"server/{target.name} {describe_move(target.server, pool)}{dry_run_note(dry_run)}")
    printer.say(f"  see: kubectl provision rollout status {goal} --watch")


def check_move(cluster: Cluster, goal: str, servers: list[Server]) -> NodePool:
    """The NodePool to move to. Raises: BadInput if there is none, or if one of the servers cannot boot its image."""
    pool = find_named(cluster, NodePool, goal)
    if pool is None:
        raise BadInput(f"there is no NodePool {goal}", hint="kubectl get nodepools")
    servers = [server for server in servers if current_pool_name(server) != goal]
    if not servers:
        return pool
    name = released_image(pool).name
    image = find_named(cluster, Image, name)
    if image is None:
        raise BadInput(f"Image {name} of NodePool {goal} does not exist", hint="publish it, or correct the NodePool")
    others = [server.name for server in servers if server.spec.architecture != image.spec.architecture]
    if others:
        words = f"Image {image.name} of NodePool {goal} is for {image.spec.architecture}, and {some(others)} is not"
        raise BadInput(words, hint="nothing was changed; leave them out, or name another NodePool")
    return pool


def describe_move(server: Server, pool: NodePool) -> str:
    """What comes of it, in words."""
    current = current_pool_name(server)
    if current == pool.name:
        stays = server.spec.node_pool_ref == pool.name
        return f"is in NodePool {pool.name}" + ("" if stays else ", and stays there: it does not move any more")
    if server.status.node_ref is None:
        return f"is booted for NodePool {pool.name} from now on; nothing runs there"
    return f"moves from NodePool {current} to {pool.name} when its jobs have ended"


def _write(cluster: Cluster, target: ServerTarget, goal: str, *, dry_run: bool = False) -> None:
    with needing(EDITOR):
        cluster.patch(of(Server), target.name, {"spec": {"nodePoolRef": goal}}, manager=MANAGER, dry_run=dry_run)
