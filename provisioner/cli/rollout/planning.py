"""`rollout plan`: what a pool's rollout would do, asked of the planner by what the API server shows now.

Nothing is written. What the controller reads of jobs is read here by the caller's own rights; what these do not reach
is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from provisioner.api import NodePool
from provisioner.api.machinery.errors import NeedsHuman, Refused, Retryable
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.rollout.pool_view import PoolView, needing
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import EventType
from provisioner.cluster.resources import PODS
from provisioner.cluster.source import Snapshot
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from provisioner.jobs.model.work import Workloads
from provisioner.jobs.pods import NOT_OVER, trim_pod
from provisioner.rollout.course import set_course, stop_at_failures
from provisioner.rollout.fleet import Occupancy, PoolSnapshot
from provisioner.rollout.forecast import Forecast, make_forecast
from provisioner.rollout.members import began_at, make_fleet, occupancy_of, widths_of
from provisioner.rollout.standing import MemberFacts

JOB_VIEWER: Final = "provisioner-job-viewer"


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What would happen to a pool. unknown: in words, what could not be asked, once each."""

    view: PoolView
    fleet: PoolSnapshot
    forecast: Forecast
    unknown: tuple[str, ...] = ()


class _NoEvents:
    """Who only looks tells nobody."""

    def record(self, regarding: Mapping[str, Any], type: EventType, reason: str, message: str) -> None:  # noqa: A002
        return


def read_workloads(cluster: Cluster, view: PoolView) -> Workloads:
    """What runs, by one list of all pods. Raises: Refused that names the role where the caller may not read them."""
    with needing(JOB_VIEWER):
        pods = cluster.list(PODS, field_selector=NOT_OVER, trim=trim_pod).items
    named = {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in pods}
    nodes = Snapshot({name: dict(node) for name, node in view.nodes.items()})
    return ClusterWorkloads(cluster, _NoEvents(), Snapshot(named), nodes=nodes, now=lambda: view.now)


def propose(view: PoolView, workloads: Workloads, now: datetime) -> Proposal:
    """Asks the planner, from now to the end. Raises: BadInput for a strategy that cannot be read."""
    pool, standings = view.pool, view.standings
    course = set_course(pool, list(standings.values()), now)
    course = stop_at_failures(course, pool, sum(each.state == "Failed" for each in standings.values()), now)
    runs, widths, unknown = _look_at_jobs(pool, standings, workloads, began_at(course, now), now)
    try:
        fleet = make_fleet(pool, course, standings, runs, widths, view.image, now)
        forecast = make_forecast(fleet, pool.spec.upgrade_strategy, now)
    except NeedsHuman as error:
        words = f"spec.upgradeStrategy of NodePool {pool.name} cannot be read: {Exception.__str__(error)}"
        raise BadInput(words, hint=error.hint) from error
    return Proposal(view=view, fleet=fleet, forecast=forecast, unknown=unknown)


def _look_at_jobs(
    pool: NodePool, standings: Mapping[str, MemberFacts], workloads: Workloads, began: datetime, now: datetime
) -> tuple[dict[str, Occupancy | None], dict[str, int], tuple[str, ...]]:
    """What runs on servers whose turn may come, how wide their jobs are, and what is not known."""
    runs: dict[str, Occupancy | None] = {}
    widths: dict[str, int] = {}
    unknown: dict[str, None] = {}
    refused: str | None = None
    without_slurm = replace(pool, spec=replace(pool.spec, jobs=replace(pool.spec.jobs, slurm=None)))
    for name, standing in standings.items():
        if standing.state != "Outdated":
            continue
        if refused is None:
            try:
                work = workloads.look(standing.server, pool, fresh=False)
            except (Refused, Retryable) as error:
                refused = f"what runs in Slurm: {error}" if pool.spec.jobs.slurm is not None else str(error)
        if refused is not None:
            work = workloads.look(standing.server, without_slurm, fresh=False)
            work = replace(work, unknown=(*work.unknown, refused))
        unknown.update(dict.fromkeys(work.unknown))
        widths.update(widths_of(work))
        deadline = pool.spec.upgrade_strategy.deadline
        runs[name] = occupancy_of(work, work.free, deadline, began.timestamp(), now.timestamp())
    return runs, widths, tuple(unknown)
