"""Workloads as they are: pods by the API server, jobs of Slurm by slurmrestd."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final

from provisioner.api.machinery.codec import encode
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.resources import SLURM_SECRETS
from provisioner.cluster.source import Source
from provisioner.jobs.free import free_share
from provisioner.jobs.model.ended import EndedJob
from provisioner.jobs.model.work import EvictionBlocked, JobKind, SlurmDrained, SlurmReserved, Work
from provisioner.jobs.pod_workloads import PodWorkloads
from provisioner.jobs.slurm.workloads import SharedSlurm, SlurmWorkloads

MAX_WORDS: Final = 1000


class ClusterWorkloads:
    """`provisioner.jobs.model.work.Workloads`.

    `pods`: a cache of all; without one, each look is fresh. `nodes`: a cache of all Nodes; without one, it is not known
    how much of a server pods leave free. `ended_pods`: a cache of those that are over; without one, and without `pods`,
    none are told of. `namespace`: where the Secrets with credentials are.
    `slurm`: what is shared with others of this process that ask slurmrestds.
    `in_lanes`: what would wait for a slurmrestd raises `outbound.lanes.NeedsLane` but in that one's own thread.
    """

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        pods: Source | None = None,
        *,
        nodes: Source | None = None,
        ended_pods: Source | None = None,
        namespace: str = SLURM_SECRETS,
        now: Callable[[], datetime],
        in_lanes: bool = False,
        slurm: SharedSlurm | None = None,
    ) -> None:
        self._events = events
        self._nodes = nodes
        self._pods = PodWorkloads(cluster, events, pods, ended_pods, now=now)
        self._slurm = SlurmWorkloads(cluster, namespace=namespace, now=now, in_lanes=in_lanes, shared=slurm)
        self.slurm_bulkhead = self._slurm.bulkhead
        self._given_up: dict[str, str] = {}  # NodePools that were told of, and the words

    def look(self, server: Server, pool: NodePool, *, fresh: bool = True) -> Work:
        if fresh:
            self._slurm.enter(pool)
        # Slurm first, which may be looked up elsewhere, and then all of it anew.
        slurm, pods = self._slurm.look(server.name, pool, fresh=fresh), self._pods.look(server.name, pool, fresh=fresh)
        self._tell(pool)
        shares = ((free_share(self._allocatable(server.name), pods.requests), pods.jobs), (slurm.free, slurm.jobs))
        return Work(
            jobs=(*pods.jobs, *slurm.jobs),
            evictable=pods.evictable,
            unknown=(*pods.unknown, *slurm.unknown),
            slurm_state=slurm.state,
            slurm_reason=slurm.reason,
            free=min(share if share is not None else 0.0 if jobs else 1.0 for share, jobs in shares),
        )

    def ended(self, pool: NodePool, servers: Collection[str], since: datetime) -> tuple[EndedJob, ...]:
        """What ended after `since` on any of `servers`, by their Nodes' names, as far as it is known without asking: of
        pods, while the objects are there; of Slurm's jobs, while it remembers them and somebody looks at its pools.

        The last first, and each once. Nothing is raised for a slurmrestd that does not answer.
        """
        found = [*self._pods.ended(pool, servers, since), *self._slurm.ended(pool, servers, since)]
        return tuple(sorted(found, key=lambda job: (job.ended, job.key), reverse=True))

    def warn(self, server: Server, pool: NodePool, deadline: datetime, reason: str) -> int:
        """Pods first: that Slurm does not answer (Retryable) must not keep them from being told."""
        self._slurm.enter(pool)
        told = self._pods.warn(server.name, pool, deadline, reason)
        return told + self._slurm.warn(server.name, pool, deadline)

    def close(self, server: Server, pool: NodePool, reason: str) -> SlurmDrained | None:
        return self._slurm.close(server.name, pool, reason)

    def evict(
        self, server: Server, pool: NodePool, *, spare: Collection[JobKind], force: bool
    ) -> tuple[EvictionBlocked, ...]:
        self._slurm.enter(pool)
        pods = self._pods.evict(server.name, pool, spare=spare, force=force)
        return (*pods, *self._slurm.evict(server.name, pool, spare=spare))

    def reopen(self, node: str, reason: str, pool: NodePool) -> bool:
        return self._slurm.reopen(node, reason, pool)

    def reserve(self, server: Server, pool: NodePool, maintenance: str, begins: datetime) -> SlurmReserved | None:
        return self._slurm.reserve(server.name, pool, maintenance, begins)

    def unreserve(self, node: str, maintenance: str, pool: NodePool) -> bool:
        return self._slurm.unreserve(node, maintenance, pool)

    def reserved(self, pool: NodePool, servers: Collection[str]) -> tuple[SlurmReserved, ...]:
        return self._slurm.reserved(pool, servers)

    def _allocatable(self, node: str) -> Mapping[str, Any]:
        body = self._nodes.get(node) if self._nodes is not None else None
        return ((body or {}).get("status") or {}).get("allocatable") or {}

    def _tell(self, pool: NodePool) -> None:
        """Say once on the NodePool that its slurmrestd is given up for a while, and once that it answers."""
        words, said = self._slurm.failure(pool), self._given_up.get(pool.name)
        if words is not None and said is None:
            self._given_up[pool.name] = words
            self._events.record(encode(pool), "Warning", "SlurmUnreachable", words[:MAX_WORDS])
        elif words is None and said is not None and self._given_up.pop(pool.name, None) is not None:
            self._events.record(encode(pool), "Normal", "SlurmReachable", "slurmrestd answers again")
