"""Jobs on a server as a test says, in place of the API's pods and Slurm."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.api import NodePool, Server
from provisioner.jobs.model.work import EvictionBlocked, Job, JobKind, NotReserved, SlurmDrained, SlurmReserved, Work


@dataclass
class FakeJobs:
    """Fixed jobs. `before_look`: what happens just before each look. drain: its reason, None without one. reservations:
    when each begins, by its Maintenance; `reserves`: whether Slurm can make them; `refuses`: why it does not."""

    jobs: list[Job] = field(default_factory=list)
    unknown: tuple[str, ...] = ()
    has_slurm: bool = False
    drain: str | None = None
    reserves: bool = True
    refuses: str | None = None
    reservations: dict[str, datetime] = field(default_factory=dict)
    held: tuple[EvictionBlocked, ...] = ()
    before_look: Callable[[int], None] = lambda look: None
    looks: int = 0
    evicted: list[str] = field(default_factory=list)
    warned: list[datetime] = field(default_factory=list)

    def look(self, server: Server, pool: NodePool, *, fresh: bool = True) -> Work:
        self.looks += 1
        self.before_look(self.looks)
        state = None if not self.has_slurm else "IDLE+DRAIN" if self.drain else "IDLE"
        pods = tuple(j.name for j in self.jobs if j.kind != "SlurmJob")
        return Work(
            jobs=tuple(self.jobs),
            evictable=pods,
            unknown=self.unknown,
            slurm_state=state,
            slurm_reason=self.drain,
            free=0.0 if self.jobs else 1.0,
        )

    def warn(self, server: Server, pool: NodePool, deadline: datetime, reason: str) -> int:
        self.warned.append(deadline)
        return len(self.jobs)

    def close(self, server: Server, pool: NodePool, reason: str) -> SlurmDrained | None:
        if not self.has_slurm:
            return None
        self.drain = self.drain or reason
        return SlurmDrained(node=server.name, reason=self.drain, ours=self.drain == reason)

    def evict(
        self, server: Server, pool: NodePool, *, spare: Collection[JobKind], force: bool
    ) -> tuple[EvictionBlocked, ...]:
        gone = [j for j in self.jobs if j.kind not in spare and (force or not j.do_not_disrupt)]
        if self.held:
            return self.held
        self.evicted += [j.name for j in gone]
        self.jobs = [j for j in self.jobs if j not in gone]
        return ()

    def reopen(self, node: str, reason: str, pool: NodePool) -> bool:
        if self.drain != reason:
            return False
        self.drain = None
        return True

    def reserve(self, server: Server, pool: NodePool, maintenance: str, begins: datetime) -> SlurmReserved | None:
        if not self.has_slurm or not self.reserves:
            return None
        if self.refuses is not None:
            raise NotReserved(self.refuses, after_seconds=5.0)
        self.reservations[maintenance] = begins
        return SlurmReserved(node=server.name, maintenance=maintenance, begins=begins)

    def unreserve(self, node: str, maintenance: str, pool: NodePool) -> bool:
        return self.reservations.pop(maintenance, None) is not None

    def reserved(self, pool: NodePool, servers: Collection[str]) -> tuple[SlurmReserved, ...]:
        (name,) = servers
        return tuple(
            SlurmReserved(node=name, maintenance=maintenance, begins=begins)
            for maintenance, begins in self.reservations.items()
        )


def job(name: str = "ml/training", kind: JobKind = "Pod", *, do_not_disrupt: bool = False) -> Job:
    return Job(
        kind=kind, name=name, servers=("r01-u01",), message=f"{kind} {name} is running", do_not_disrupt=do_not_disrupt
    )
