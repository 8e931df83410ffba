"""`kubectl provision rollout status|history|plan`: how far a pool is, where it has been, what would happen."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click

from provisioner.api import NodePool
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.schema import API_VERSION
from provisioner.api.machinery.wording import clip
from provisioner.api.pools.rollout_status import RolloutRecord, RolloutStatus
from provisioner.cli import printer
from provisioner.cli.kubectl.asking import KubectlCommand
from provisioner.cli.kubectl.connection import connection_of, connection_options
from provisioner.cli.kubectl.moments import read_span
from provisioner.cli.kubectl.printing import Cell, output_option, print_in_form, print_objects, table
from provisioner.cli.rollout.arguments import image_option, pool_argument
from provisioner.cli.rollout.changes import check_image
from provisioner.cli.rollout.pool_view import PoolView, find_image, read_pool_body, read_view, with_image
from provisioner.cli.rollout.screen import LOOKS, render_rollout, server_waits, state_of
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of

# `rollout history`: where a pool has been. Pure.

HEADER: Final = ("IMAGE", "FROM", "STARTED", "ENDED", "OUTCOME", "UPDATED", "FAILED", "MESSAGE")
SHOWN_MESSAGE_LENGTH: Final = 60


def render_history(pool: NodePool) -> str:
    """The rollout under way first, then those that are over, the last one first."""
    status, rollout = pool.status, pool.status.rollout
    rows = [
        _history_row(record, record.ended_time, record.outcome, record.updated, record.failed)
        for record in status.history
    ]
    if rollout is not None and rollout.completed_time is None:
        outcome = "Stopped" if rollout.stopped is not None else "UnderWay"
        rows.insert(0, _history_row(rollout, None, outcome, status.updated, status.failed))
    if not rows:
        return f"{pool.name} was never moved to another image: it has had Image {pool.spec.image_ref} from the begin\n"
    return table(HEADER, rows)


def _history_row(
    rollout: RolloutStatus | RolloutRecord, ended: str | None, outcome: str, updated: int | None, failed: int | None
) -> Sequence[Cell]:
    message = clip(rollout.message, SHOWN_MESSAGE_LENGTH)
    return rollout.image_ref, rollout.previous_image_ref, rollout.started_time, ended, outcome, updated, failed, message


POOLS_HEADER: Final = (
    "POOL", "IMAGE", "FROM", "STAGE", "UPDATED", "WAITING", "LEFT-ALONE", "FAILED", "EXPECTED", "MESSAGE",
)  # fmt: skip
MESSAGE_LENGTH: Final = 70


@click.command("status", cls=KubectlCommand, short_help="Say how far a rollout is, and what it waits for.")
@pool_argument(required=False)
@click.option("-w", "--watch", is_flag=True, help="Draw the fleet as it changes, until it is complete or stops.")
@click.option("--timeout", metavar="SPAN", help="How long to --watch, such as 8h [without end].")
@click.option("--all", "everything", is_flag=True, help="All servers in the table, not the first 30.")
@output_option("json", "yaml", "name")
@connection_options
def status(**options: Any) -> None:
    """Say how far a pool's rollout is, what it waits for, what failed, and what one can do. All pools without a name.

    With --watch the exit code is 0 once it is complete, 4 if it stopped itself, 5 if the time is over.

    \b
    Examples:
      kubectl provision rollout status
      kubectl provision rollout status gpu
      kubectl provision rollout status gpu --watch
    """
    pool, form, timeout = options.pop("pool"), options.pop("output"), options.pop("timeout")
    watch, everything = options.pop("watch"), options.pop("everything")
    if watch and (pool is None or form is not None):
        raise click.UsageError("--watch draws one pool: name it, and leave -o out")
    if timeout is not None and not watch:
        raise click.UsageError("--timeout is for --watch: give both")
    seconds = read_span(timeout, "--timeout").total_seconds() if timeout is not None else None
    cluster = connection_of(options).open()
    if pool is None:
        _show_pools(cluster, form)
        return
    body = read_pool_body(cluster, pool)
    view = read_view(cluster, decode(NodePool, body), datetime.now(UTC))
    if watch:
        from provisioner.cli.rollout.watching import watch_rollout

        sys.exit(watch_rollout(cluster, view.pool.name, timeout_seconds=seconds))
    if not print_in_form(form, lambda: [_report(view, body)], [f"nodepool.provisioner.dev/{view.pool.name}"]):
        printer.show(render_rollout(view, everything=everything))


def _show_pools(cluster: Cluster, form: str | None) -> None:
    bodies = cluster.list(of(NodePool)).items
    if print_in_form(form, lambda: bodies, [f"nodepool.provisioner.dev/{body['metadata']['name']}" for body in bodies]):
        return
    if bodies:
        printer.show(render_pools([decode(NodePool, body) for body in bodies]))
    else:
        printer.say("no NodePools", err=True)


def render_pools(pools: list[NodePool]) -> str:
    """A line for each pool. Pure."""
    return table(POOLS_HEADER, [_pool_row(pool) for pool in sorted(pools, key=lambda each: each.name)])


def _pool_row(pool: NodePool) -> Sequence[Cell]:
    status, found = pool.status, pool.status.rollout
    stage: str | None = None
    if found is not None:
        left = sum(wait.count for wait in found.waits)
        complete = f"Complete but {left}" if left else "Complete"
        stage = complete if found.completed_time else "STOPPED" if found.stopped else None
        stage = stage or ("Paused" if pool.spec.upgrade_strategy.paused else found.stage)
    return (
        pool.name,
        pool.spec.image_ref,
        found.previous_image_ref if found is not None and found.completed_time is None else None,
        stage,
        None if status.desired is None else f"{status.updated or 0}/{status.desired}",
        status.waiting,
        status.left_alone,
        status.failed,
        found.expected_time if found is not None else None,
        clip(found.message, MESSAGE_LENGTH) if found is not None else None,
    )


def _report(view: PoolView, body: Mapping[str, Any]) -> dict[str, Any]:
    """For programs: the pool's own words, and each server."""
    return {
        "apiVersion": API_VERSION,
        "kind": "RolloutReport",
        "metadata": {"name": view.pool.name},
        "observed": view.is_observed,
        "imageRef": view.pool.spec.image_ref,
        "status": body.get("status") or {},
        "servers": [
            {
                "name": name,
                "state": state_of(standing),
                "words": LOOKS[state_of(standing)].word,
                "imageRef": standing.server.status.image_ref,
                "assignedImageRef": standing.server.status.assigned_image_ref,
                "maintenance": current.name if (current := view.maintenance_of(name)) is not None else None,
                "waitsFor": server_waits(view, standing),
                "failure": to_json(standing.failure) if standing.failure is not None else None,
            }
            for name, standing in view.standings.items()
        ],
    }


@click.command("history", cls=KubectlCommand, short_help="Show where a pool has been.")
@pool_argument()
@output_option("json", "yaml")
@connection_options
def history(**options: Any) -> None:
    """Show the rollout under way, and those that are over.

    \b
    Example:
      kubectl provision rollout history gpu
    """
    name, form = options.pop("pool"), options.pop("output")
    body = read_pool_body(connection_of(options).open(), name)
    if form is not None:
        found = body.get("status") or {}
        report = {
            "apiVersion": API_VERSION,
            "kind": "RolloutHistory",
            "metadata": {"name": body["metadata"]["name"]},
        }
        print_objects([report | {"rollout": found.get("rollout"), "history": found.get("history") or []}], form)
    else:
        printer.show(render_history(decode(NodePool, body)))


@click.command("plan", cls=KubectlCommand, short_help="Say what would happen, in which order, at what cost.")
@pool_argument()
@image_option("Image to move to [the one that the pool wants].")
@click.option("--all", "everything", is_flag=True, help="All servers in the table, not the first 30.")
@connection_options
def plan(**options: Any) -> None:
    """Say what a rollout would do from now on, without doing it: the planner of the controller is asked.

    It reads pods (ClusterRole provisioner-job-viewer) and, for a pool with Slurm, its Secret; servers of which you may
    not see the jobs are said to be unknown.

    \b
    Examples:
      kubectl provision rollout plan gpu --image gpu-node-9f3c01234567
      kubectl provision rollout plan gpu
    """
    from provisioner.cli.rollout.plan_screen import render_plan
    from provisioner.cli.rollout.planning import propose, read_workloads

    name, image, everything = options.pop("pool"), options.pop("image"), options.pop("everything")
    cluster, now = connection_of(options).open(), datetime.now(UTC)
    view = read_view(cluster, decode(NodePool, read_pool_body(cluster, name)), now)
    if image is not None:
        found = find_image(cluster, image)
        check_image(view.pool, image, found, view.standings.values())
        view = with_image(view, image, found)
    printer.show(render_plan(propose(view, read_workloads(cluster, view), now), everything=everything))
