"""`kubectl provision rollout start|pause|resume|undo POOL`: what a person decides, written into the NodePool's spec."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click

from provisioner.api import NodePool
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Conflict
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand, ask_person, read_wait, wait_options
from provisioner.cli.kubectl.connection import MANAGER, connection_of, connection_options
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.kubectl.printing import output_option, print_in_form
from provisioner.cli.rollout import changes
from provisioner.cli.rollout.arguments import image_option, pool_argument
from provisioner.cli.rollout.pool_view import EDITOR, PoolView, find_image, needing, read_pool_body, read_view
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of

Decide = Callable[[Cluster, PoolView], changes.PoolChange]

ATTEMPTS: Final = 5

_wait_options = wait_options("Watch until it is complete, or stops.", "8h")


@click.command("start", cls=KubectlCommand, short_help="Move a pool to another image.")
@pool_argument()
@image_option("Image that the pool's servers shall run.", required=True)
@_wait_options
@output_option("json", "yaml", "name")
@connection_options
def start(**options: Any) -> None:
    """Move a pool to another image: its spec.imageRef is set, and its servers follow as their jobs end.

    No job is interrupted, unless the pool's own strategy sets a deadline. Canary, waves, caps and windows are those of
    the pool (spec.upgradeStrategy). A rollout that was paused goes on. What would happen: rollout plan.

    \b
    Examples:
      kubectl provision rollout start gpu --image gpu-node-9f3c01234567
      kubectl provision rollout start gpu --image gpu-node-9f3c01234567 --wait
    """
    image = options.pop("image")

    def decide(cluster: Cluster, view: PoolView) -> changes.PoolChange:
        return changes.begin(view, image, find_image(cluster, image))

    _carry_out(options, decide)


@click.command("pause", cls=KubectlCommand, short_help="Let no further server begin.")
@pool_argument()
@output_option("json", "yaml", "name")
@connection_options
def pause(**options: Any) -> None:
    """Let no further server begin. Those that are on their way arrive; servers that were closed take jobs again.

    \b
    Example:
      kubectl provision rollout pause gpu
    """
    _carry_out(options, lambda _cluster, view: changes.pause(view))


@click.command("resume", cls=KubectlCommand, short_help="Let it go on; try again what failed.")
@pool_argument()
@click.option("-y", "--yes", is_flag=True, help="Do not ask before servers that failed are tried again.")
@_wait_options
@output_option("json", "yaml", "name")
@connection_options
def resume(**options: Any) -> None:
    """Let a rollout go on that is paused. One that stopped itself tries those again that failed, after a question.

    \b
    Example:
      kubectl provision rollout resume gpu
    """
    _carry_out(options, lambda _cluster, view: changes.resume(view))


@click.command("undo", cls=KubectlCommand, short_help="Go back to the image before.")
@pool_argument()
@image_option("Image to go back to [the one that the rollout came from].", name="--to")
@_wait_options
@output_option("json", "yaml", "name")
@connection_options
def undo(**options: Any) -> None:
    """Go back to the image before, mid-way too: who has not begun stays, the others go back as their jobs end.

    \b
    Examples:
      kubectl provision rollout undo gpu
      kubectl provision rollout undo gpu --to gpu-node-6f2c9a1be0d4
    """
    named = options.pop("image")

    def decide(cluster: Cluster, view: PoolView) -> changes.PoolChange:
        image = named or changes.find_way_back(view.pool)
        if image is None:
            raise BadInput(
                f"NodePool {view.pool.name} has had no image but {view.pool.spec.image_ref}, to go back to",
                hint=f"name one: kubectl provision rollout undo {view.pool.name} --to IMAGE",
            )
        return changes.undo(view, image, find_image(cluster, image))

    _carry_out(options, decide)


def _carry_out(options: dict[str, Any], decide: Decide) -> None:
    """From what the pool is to what it shall be; decided anew if somebody else changed the same meanwhile."""
    wait, seconds = read_wait(options)
    yes, form, name = options.pop("yes", False), options.pop("output"), options.pop("pool")
    cluster = connection_of(options).open()
    body, change = write_change(cluster, name, decide, yes=yes)
    pool = body["metadata"]["name"]
    _show(body, change, form)
    if wait:
        from provisioner.cli.rollout.watching import watch_rollout

        sys.exit(watch_rollout(cluster, pool, timeout_seconds=seconds))


def write_change(
    cluster: Cluster, name: str, decide: Decide, *, yes: bool
) -> tuple[Mapping[str, Any], changes.PoolChange]:
    """The pool, and what was changed of it; nothing if it is so already. Raises: BadInput, Refused; Conflict."""
    for attempt in range(ATTEMPTS):
        body = read_pool_body(cluster, name)
        change = decide(cluster, read_view(cluster, decode(NodePool, body), datetime.now(UTC)))
        if not change.fields:
            break
        if change.question is not None and not yes:
            refusal = BadInput("nothing was changed", hint="kubectl provision rollout undo goes back")
            ask_person(change.question, refusal)
            yes = True
        try:
            with needing(EDITOR):
                return cluster.patch_seen(of(NodePool), body, change.fields, manager=MANAGER), change
        except Conflict:
            if attempt == ATTEMPTS - 1:
                raise
    return body, change


def _show(body: Mapping[str, Any], change: changes.PoolChange, form: str | None) -> None:
    name = body["metadata"]["name"]
    if not print_in_form(form, lambda: [body], [f"nodepool.provisioner.dev/{name}"]):
        first, *rest = change.words
        printer.say(f"nodepool/{name} {first}", *(f"  {words}" for words in rest))
        printer.say(f"  see: kubectl provision rollout status {name} --watch")
