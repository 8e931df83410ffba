"""What runs on a server, in the words of the executor that has to wait for it or to end it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from provisioner.api.machinery.errors import Retryable
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.server import Server

JobKind = Literal["Pod", "PodGroup", "SlurmJob"]


@dataclass(frozen=True, kw_only=True)
class Job:
    """Something that is not interrupted under WhenIdle. A gang (JobSet, PodGroup, Slurm job) is one.

    `servers`: the Nodes, by name, on which members of it run; with more than one, to disturb one is to end it on all.
    `began`: when the first of it began to run; None if nothing of it has, or it is not known. `ends`: by when its own
    time limit ends all of it, give or take what it needs to stop; None if it has none, or it is not known. `partition`
    and `qos`: of a job of Slurm.
    """

    kind: JobKind
    name: str
    """`namespace/name` of a pod or gang, the id of a Slurm job."""
    servers: tuple[str, ...]
    message: str
    """What it is and in which state, such as "Slurm job 4711 of alice is completing"."""
    do_not_disrupt: bool = False
    """Its owner forbids eviction: a Deadline does not end it, only Now does."""
    began: datetime | None = None
    ends: datetime | None = None
    partition: str | None = None
    qos: str | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """What runs on one server.

    `unknown`: in words, what could not be asked (slurmrestd does not answer): a server is not idle while there is any.
    `evictable`: pods, as namespace/name, that a drain has to end, whether they are jobs or not.
    """

    jobs: tuple[Job, ...] = ()
    evictable: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    slurm_state: str | None = None
    """State of the node in Slurm, such as "IDLE+DRAIN"; None without Slurm."""
    slurm_reason: str | None = None
    """Its reason, if it is drained or down; whose it is decides who may lift it."""
    free: float = 1.0
    """Share of the server on which nothing runs, from 0 to 1: by its GPUs, or by its CPUs if it has none. Where that is
    not known, 0 if there is a job, else 1; of Slurm's nodes a fresh look does not know it."""

    @property
    def is_idle(self) -> bool:
        return not self.jobs and not self.unknown

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left there that a drain has to end."""
        return self.is_idle and not self.evictable


@dataclass(frozen=True, kw_only=True)
class EvictionBlocked:
    """Something that did not let itself be ended yet, and why; `kind` is that of a Blocker."""

    kind: Literal["Pod", "PodDisruptionBudget", "SlurmJob", "Slurm"]
    name: str
    message: str


@dataclass(frozen=True, kw_only=True)
class SlurmDrained:
    """What Slurm's node is after `close`. `ours`: it is drained with our reason; else with somebody else's."""

    node: str
    reason: str
    ours: bool


@dataclass(frozen=True, kw_only=True)
class SlurmReserved:
    """A reservation of ours in Slurm: no job runs past `begins` on `node`, unless it ran there before."""

    node: str
    maintenance: str
    begins: datetime | None
    """None if Slurm says no moment."""


class NotReserved(Retryable):
    """Slurm has answered, and did not reserve the node: drain it, or ask again later."""


class Workloads(Protocol):
    """The door to what runs on servers. Every method raises Retryable while the API server, or slurmrestd where it is
    asked, does not answer.

    What is done is done on what is true at that moment, past every cache.
    """

    def look(self, server: Server, pool: NodePool, *, fresh: bool = True) -> Work:
        """What runs there. Slurm that does not answer is `unknown`, not an error.

        fresh: what is true now, past every cache; else pods may be those of a moment ago.
        """

    def warn(self, server: Server, pool: NodePool, deadline: datetime, reason: str) -> int:
        """Tell the jobs there (every member of a gang) of the deadline; returns how many were told. Idempotent."""

    def close(self, server: Server, pool: NodePool, reason: str) -> SlurmDrained | None:
        """Drain the node in Slurm; None without Slurm. A drain that is somebody else's stays as it is.

        The taint that keeps pods away is the executor's.
        """

    def evict(
        self, server: Server, pool: NodePool, *, spare: Collection[JobKind], force: bool
    ) -> tuple[EvictionBlocked, ...]:
        """Ask every evictable pod, and every job not spared, to end; returns what is still there, and why.

        PodDisruptionBudgets are honoured, also with `force`, which only overrides do-not-disrupt. Idempotent.
        """

    def reopen(self, node: str, reason: str, pool: NodePool) -> bool:
        """Lift the drain of `node` in Slurm if its reason is still exactly `reason`; whether it was lifted."""

    def reserve(self, server: Server, pool: NodePool, maintenance: str, begins: datetime) -> SlurmReserved | None:
        """Have Slurm start nothing on the node that may run past `begins`, and nothing from then on, for a week, where
        `close` closes it at once. Only slurmrestd of Slurm 25.05 or newer can.

        None if that cannot be had, without Slurm or with an older one: drain it instead. Idempotent; another `begins`
        moves a reservation that has not begun. One that has begun stays. Raises: NotReserved if Slurm refuses it.
        """

    def unreserve(self, node: str, maintenance: str, pool: NodePool) -> bool:
        """Delete the reservation of `node` for `maintenance`; whether there was one."""

    def reserved(self, pool: NodePool, servers: Collection[str]) -> tuple[SlurmReserved, ...]:
        """All that there are of `servers`, also those that nobody remembers: of a Maintenance that is gone, too."""
