"""Slurm's part of `provisioner.jobs.model.work.Workloads`: its jobs seen, warned and ended; nodes drained and resumed.

A drain belongs to whoever set it. Slurm has no compare-and-set, so that each change is preceded by a look, and followed
by another one that says what came of it.

Looks for decisions that can be taken back are shared by all servers of a slurmrestd (`looks`). What waits for one
does so in its own thread (`outbound.lanes`): a slurmrestd that hangs takes no worker from the servers of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import structlog

from provisioner.api.pools.node_pool import NodePool
from provisioner.api.pools.pool_settings import SlurmJobs
from provisioner.cluster.client import Cluster
from provisioner.jobs.model.ended import EndedJob, no_later_than
from provisioner.jobs.model.work import EvictionBlocked, Job, JobKind, SlurmDrained, SlurmReserved
from provisioner.jobs.slurm.acts import (
    delete_reservation,
    end_jobs,
    require_node,
    reserve_node,
    signal_of,
    update_node,
    warn_job,
)
from provisioner.jobs.slurm.answers import SlurmFailed
from provisioner.jobs.slurm.connections import BACKEND, POLICY, SlurmConnections, key_of
from provisioner.jobs.slurm.jobs import NodeJobs, as_job, describe, jobs_of_node, warned
from provisioner.jobs.slurm.looks import PollFailure, SlurmCluster, SlurmLooks
from provisioner.jobs.slurm.objects import SlurmNode
from provisioner.jobs.slurm.reservations import maintenance_of, reservation_name
from provisioner.outbound.bulkhead import Bulkhead
from provisioner.outbound.lanes import Lanes

log = structlog.get_logger()


@dataclass(frozen=True)
class SharedSlurm:
    """What those have in common who ask slurmrestds from one process, each with an account of its own: none is asked
    twice for what both want to know, or given up by one of them alone."""

    looks: SlurmLooks
    bulkhead: Bulkhead


def share_slurm(now: Callable[[], datetime], monotonic: Callable[[], float] = time.monotonic) -> SharedSlurm:
    return SharedSlurm(SlurmLooks(now=now, monotonic=monotonic), Bulkhead(BACKEND, POLICY, clock=monotonic))


@dataclass(frozen=True)
class SlurmView:
    """What Slurm knows of a server. `unknown` has an entry wherever it could not be asked."""

    jobs: tuple[Job, ...] = ()
    unknown: tuple[str, ...] = ()
    state: str | None = None
    reason: str | None = None
    free: float | None = None
    """Share of the server on which none of its jobs runs; None if that is not known."""


class SlurmWorkloads:
    """Usable from several threads. `namespace`: where the Secrets with credentials are.

    `in_lanes`: what waits for a slurmrestd raises NeedsLane but in its own thread; else each caller waits itself.
    `shared`: with whom else in this process; with nobody if absent.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
        in_lanes: bool = False,
        shared: SharedSlurm | None = None,
    ) -> None:
        shared = shared or share_slurm(now, monotonic)
        self._now = now
        self._looks = shared.looks
        self.bulkhead = shared.bulkhead
        lanes = Lanes(BACKEND, self.look_ahead) if in_lanes else None
        self._connections = SlurmConnections(cluster, shared.bulkhead, lanes, namespace=namespace, monotonic=monotonic)

    def enter(self, pool: NodePool) -> None:
        """Go on if this thread may wait for the pool's slurmrestd, or nobody would. Raises: NeedsLane."""
        settings = pool.spec.jobs.slurm
        if settings is not None and self._connections.refusal(key_of(settings)) is None:
            self._connections.enter(key_of(settings))

    def failure(self, pool: NodePool) -> str | None:
        """Why the pool's slurmrestd is asked less often than it would be; None if it is not."""
        settings = pool.spec.jobs.slurm
        if settings is None or not self._connections.is_given_up(key_of(settings)):
            return None
        failure = self._looks.failure(key_of(settings))
        return (
            failure.describe(given_up=True) if failure is not None else f"slurmrestd at {settings.url} does not answer"
        )

    def look(self, server: str, pool: NodePool, *, fresh: bool = True) -> SlurmView:
        """What Slurm has there; that it does not answer is `unknown`.

        fresh: now; else as lately as `looks` keeps it, and since the last change from here.
        """
        settings = pool.spec.jobs.slurm
        if settings is None:
            return SlurmView()
        name = settings.node_name_prefix + server
        try:
            if fresh:
                node, found = self._observe(name, settings)
                told, free = as_job, None
            else:
                seen = self._lately(name, settings)
                node = require_node(seen.nodes.get(name), name)
                found, told, free = seen.jobs_of(node, self._now()), seen.as_job, node.free
        except SlurmFailed as error:
            return SlurmView(unknown=(self.failure(pool) or str(error),))
        jobs = tuple(told(job, settings.node_name_prefix) for job in (*found.running, *found.planned))
        reason = node.reason if not node.takes_jobs else None
        unknown = (*found.unknown, *(held.message for held in found.ending))
        return SlurmView(jobs, unknown, node.state, reason, free)

    def ended(self, pool: NodePool, servers: Collection[str], since: datetime) -> Iterator[EndedJob]:
        """Jobs that ended after `since` on any of `servers`, by what was seen last; nothing is asked for it here, but
        what is wanted is asked ahead by whoever looks."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return
        self._looks.want(key_of(settings))
        seen, wanted = self._looks.last(key_of(settings)), frozenset(servers)
        if seen is not None:
            for job in seen.ended_since(since, settings.node_name_prefix):
                if not wanted.isdisjoint(job.servers):
                    yield no_later_than(self._now(), job)

    def look_ahead(self, url: str) -> float | None:
        """Ask what is wanted of `url` and nearly out of date; seconds until the next time, None: never."""
        return self._looks.ahead(url, self._connections.connect)

    def warn(self, server: str, pool: NodePool, deadline: datetime) -> int:
        """Signal the jobs there, and note in their administrator's comment that they were told; how many know."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return 0
        _, found = self._observe(settings.node_name_prefix + server, settings)
        rest = self._connections.connect(key_of(settings))
        return sum(
            warned(job, deadline) or warn_job(rest, job, deadline, signal_of(settings))
            for job in found.running
            if not job.is_completing
        )

    def close(self, server: str, pool: NodePool, reason: str) -> SlurmDrained | None:
        """Drain the node with `reason`, unless somebody else has taken it out of use. Raises: SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return None
        name = settings.node_name_prefix + server
        rest = self._connections.connect(key_of(settings))
        before = require_node(rest.node(name), name)
        if before.takes_jobs:
            with self._acting(settings, name):
                after = update_node(rest, name, "DRAIN", reason)
            if after.takes_jobs:
                raise SlurmFailed(f"Slurm node {name} was not drained, it is {after.state}", after_seconds=5.0)
            log.info("slurm node was drained", node=name, reason=after.reason, state=after.state)
            before = after
        return SlurmDrained(node=name, reason=before.reason, ours=before.is_drained and before.reason == reason)

    def reopen(self, node: str, reason: str, pool: NodePool) -> bool:
        """Resume `node` if it is drained with exactly `reason`. Raises: SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return False
        rest = self._connections.connect(key_of(settings))
        before = rest.node(node)
        if before is None or not before.is_drained or before.reason != reason:
            return False
        with self._acting(settings, node):
            after = update_node(rest, node, "RESUME", None)
        if after.is_drained and after.reason == reason:
            raise SlurmFailed(f"Slurm node {node} was not resumed, it is {after.state}", after_seconds=5.0)
        log.info("slurm node was resumed", node=node, reason=reason, state=after.state)
        return True

    def reserve(self, server: str, pool: NodePool, maintenance: str, begins: datetime) -> SlurmReserved | None:
        """Reserve the node from `begins` on; None where that cannot be asked for. Raises: SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return None
        rest = self._connections.connect(key_of(settings))
        if not rest.reserves:
            return None
        node, name = settings.node_name_prefix + server, reservation_name(maintenance)
        with self._acting(settings, node):
            found = reserve_node(rest, name, node, begins, self._now())
        return SlurmReserved(node=node, maintenance=maintenance, begins=found.begins)

    def unreserve(self, node: str, maintenance: str, pool: NodePool) -> bool:
        """Delete the reservation of `node` for that Maintenance; whether there was one. Raises: SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return False
        rest = self._connections.connect(key_of(settings))
        with self._acting(settings, node):
            return delete_reservation(rest, reservation_name(maintenance), node)

    def reserved(self, pool: NodePool, servers: Collection[str]) -> tuple[SlurmReserved, ...]:
        """Reservations of ours, by their names, each of one of `servers`. Raises: SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return ()
        nodes = {settings.node_name_prefix + server for server in servers}
        reservations = self._connections.connect(key_of(settings)).reservations()
        return tuple(
            SlurmReserved(node=each.nodes, maintenance=maintenance, begins=each.begins)
            for each in reservations
            if each.nodes in nodes and (maintenance := maintenance_of(each)) is not None
        )

    def evict(self, server: str, pool: NodePool, *, spare: Collection[JobKind]) -> tuple[EvictionBlocked, ...]:
        """Requeue or cancel the jobs there; returns those that are still there, and why. Never raises SlurmFailed."""
        settings = pool.spec.jobs.slurm
        if settings is None:
            return ()
        name = settings.node_name_prefix + server
        try:
            node, found = self._observe(name, settings)
            if "SlurmJob" not in spare:
                rest = self._connections.connect(key_of(settings))
                with self._acting(settings, name):
                    ended = end_jobs(rest, node, found, self._now())
                if ended:
                    _, found = self._observe(name, settings)
        except SlurmFailed as error:
            return (EvictionBlocked(kind="Slurm", name=name, message=self.failure(pool) or str(error)),)
        held = [
            EvictionBlocked(
                kind="SlurmJob",
                name=job.label,
                message=describe(job) + ("; it is not interrupted" * ("SlurmJob" in spare)),
            )
            for job in found.running
        ]
        held += [EvictionBlocked(kind="Slurm", name=name, message=words) for words in found.unknown]
        return (*held, *found.ending)

    def _observe(self, name: str, settings: SlurmJobs) -> tuple[SlurmNode, NodeJobs]:
        rest = self._connections.connect(key_of(settings))
        # The node first: a job that starts between the two is then seen among the jobs.
        node = require_node(rest.node(name), name)
        return node, jobs_of_node(node, rest.jobs(), self._now())

    def _lately(self, name: str, settings: SlurmJobs) -> SlurmCluster:
        """What was seen of all nodes since that one was changed last from here."""
        key = key_of(settings)
        self._looks.want(key)
        found = self._looks.find(key, name)
        if found is None and self._connections.refusal(key) is not None:
            found = self._looks.failure(key)
        if found is None:
            self._connections.enter(key)
            found = self._looks.refresh(key, name, self._connections.connect)
        if isinstance(found, PollFailure):
            raise SlurmFailed(found.describe(given_up=self._connections.is_given_up(key)), after_seconds=5.0)
        return found

    @contextmanager
    def _acting(self, settings: SlurmJobs, node: str) -> Iterator[None]:
        """What is done inside may change `node`, also if it fails: it is looked at anew."""
        try:
            yield
        finally:
            self._looks.acted(key_of(settings), node)
