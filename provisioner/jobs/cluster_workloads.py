"""Workloads as they are: pods by the API server, jobs of Slurm by slurmrestd."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

from provisioner.api.node_pool import NodePool
from provisioner.api.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.jobs.pod_jobs import evictable_keys
from provisioner.jobs.pod_workloads import PodWorkloads
from provisioner.jobs.work import Held, JobKind, SlurmDrained, Work

NAMESPACE: Final = "provisioner-system"


class ClusterWorkloads:
    """`provisioner.jobs.work.Workloads`. `namespace`: where the Secrets with Slurm's credentials are."""

    def __init__(
        self, cluster: Cluster, events: Events, *, namespace: str = NAMESPACE, now: Callable[[], datetime]
    ) -> None:
        self._pods = PodWorkloads(cluster, events, now=now)

    def look(self, server: Server, pool: NodePool) -> Work:
        view = self._pods.look(server.name, pool)
        return Work(
            jobs=tuple(found.job for found in view.jobs),
            evictable=evictable_keys(view.pods),
            unknown=view.rules.unknown,
        )

    def warn(self, server: Server, pool: NodePool, deadline: datetime, reason: str) -> int:
        return self._pods.warn(server.name, pool, deadline, reason)

    def close(self, server: Server, pool: NodePool, reason: str) -> SlurmDrained | None:
        return None

    def evict(self, server: Server, pool: NodePool, *, spare: Collection[JobKind], force: bool) -> tuple[Held, ...]:
        return self._pods.evict(server.name, pool, spare=spare, force=force)

    def reopen(self, node: str, reason: str, pool: NodePool) -> bool:
        return False
