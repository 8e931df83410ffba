"""Jobs that have ended, and how: what a new image is judged by.

What they say is no proof. Whoever runs a job decides how it ends, and names and labels it; a node says of its own pods
when they ended and why. One of them can make an image look worse or better than it is, by as many jobs as it may run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.server import Server
from provisioner.jobs.model.work import JobKind, Work


@dataclass(frozen=True, kw_only=True)
class EndedJob:
    """A job that is over. `servers`: the Nodes, by name, on which it ran.

    The same one is told again for as long as it is remembered, and of a gang `ended` may then become earlier, as its
    pods go: count a `key` again only if it ended later than the time before. It is told late where its node is late.
    """

    kind: JobKind
    key: str
    namespace: str = ""
    """Empty for a job of Slurm."""
    name: str
    """Of a pod or a gang; of a job of Slurm as its owner called it, or its id."""
    servers: tuple[str, ...]
    began: datetime | None
    ended: datetime
    succeeded: bool
    reason: str
    """Of a pod what Kubernetes says: Completed, Error, OOMKilled, Evicted, DeadlineExceeded, the reason of its
    DisruptionTarget such as PreemptionByScheduler, or Deleted for one that somebody deleted while it ran. Of a job of
    Slurm its state: COMPLETED, FAILED, TIMEOUT, NODE_FAIL, CANCELLED, PREEMPTED, OUT_OF_MEMORY, BOOT_FAIL, DEADLINE."""
    exit_code: int | None = None
    signal: int | None = None
    partition: str | None = None
    qos: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    """Some of a pod's: as many as its cache keeps."""


def no_later_than(now: datetime, job: EndedJob) -> EndedJob:
    """By a clock that is ahead of ours, a job may end in the future."""
    return job if job.ended <= now else replace(job, ended=now)


class Looks(Protocol):
    """What runs on servers, and what has ended there, for who touches none of it."""

    def look(self, server: Server, pool: NodePool, *, fresh: bool = True) -> Work:
        """As `provisioner.jobs.model.work.Workloads`."""

    def ended(self, pool: NodePool, servers: Collection[str], since: datetime) -> tuple[EndedJob, ...]:
        """What ended after `since` on any of `servers`, as far as it is known without asking. Raises nothing."""
