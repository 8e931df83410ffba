"""Fake jobs: pods, gangs and Slurm jobs as the executor's `Workloads` sees them, without a kubelet or Slurm.

Simulated: a job starts only where a scheduler could place it now (the world decides); an eviction takes effect after
a grace; Slurm's drain keeps Slurm jobs away and nothing else, its reservation those that may run past its begin. Who
interrupted a job is judged by the world.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.server import Server
from provisioner.jobs.model.ended import EndedJob
from provisioner.jobs.model.work import EvictionBlocked, Job, JobKind, SlurmDrained, SlurmReserved, Work
from tests.maintenance.chaos.fake_time import FakeClock
from tests.maintenance.chaos.story import Story

GRACE = timedelta(seconds=5)
Object = dict[str, Any]


@dataclass
class FakeJob:
    """One job. `ends_at` None: it runs until somebody ends it. `share`: of each server that it takes. `has_limit`: it
    is known that it ends then."""

    name: str
    servers: tuple[str, ...]
    kind: JobKind = "Pod"
    ends_at: datetime | None = None
    do_not_disrupt: bool = False
    warned_for: datetime | None = None
    warned_at: datetime | None = None
    began: datetime | None = None
    being_evicted: bool = False
    fails: bool = False
    share: float = 1.0
    has_limit: bool = False


class FakeWorkloads:
    """Every job there is, and every drain and reservation in Slurm. `may_interrupt(job, why)` is told before a job is
    ended. `reserves`: whether Slurm can make reservations."""

    def __init__(self, clock: FakeClock, story: Story, *, slurm: bool = True, reserves: bool = True) -> None:
        self._clock, self._story = clock, story
        self.slurm, self.reserves = slurm, reserves
        self.reservations: dict[str, tuple[str, datetime]] = {}
        """By the Maintenance that each is named after: of which node, and from when on."""
        self.jobs: dict[str, FakeJob] = {}
        self.drains: dict[str, str] = {}
        self.interrupted: list[str] = []
        self._spans: list[tuple[FakeJob, datetime, datetime | None]] = []
        self.judge_interruption: Callable[[FakeJob, str], None] = lambda job, why: None

    def start(self, job: FakeJob) -> None:
        self.jobs[job.name], job.began = job, self._clock.now
        self._spans.append((job, self._clock.now, None))
        self._story.tell("jobs", f"{job.kind} {job.name} starts on {', '.join(job.servers)}")

    def end(self, name: str) -> None:
        if self._take_off(name):
            self._story.tell("jobs", f"{name} is over")

    def ran(self, server: str, moment: datetime) -> bool:
        """Whether any job ran there at that moment."""
        return any(
            server in job.servers and began <= moment and (ended is None or ended >= moment)
            for job, began, ended in self._spans
        )

    def _take_off(self, name: str) -> bool:
        job = self.jobs.pop(name, None)
        self._spans = [(j, began, self._clock.now if j is job else ended) for j, began, ended in self._spans]
        return job is not None

    def on(self, server: str) -> list[FakeJob]:
        return [job for job in self.jobs.values() if server in job.servers]

    def takes(self, server: str, ends: datetime | None) -> bool:
        """Whether Slurm would start a job there now that ends then at the latest."""
        begins = [begin for node, begin in self.reservations.values() if node == server]
        return server not in self.drains and all(ends is not None and ends <= begin for begin in begins)

    def pods(self) -> dict[str, Object]:
        """What a cache of pods would show, by key."""
        return {
            key: {"metadata": {"name": key}, "spec": {"nodeName": server}}
            for job in self.jobs.values()
            for server in job.servers
            if job.kind != "SlurmJob" and (key := f"{job.name}-{server}")
        }

    def pass_time(self) -> None:
        """End the jobs whose time has come."""
        for job in list(self.jobs.values()):
            if job.ends_at is not None and job.ends_at <= self._clock.now:
                self.end(job.name)

    def next_moment(self) -> datetime | None:
        return min((job.ends_at for job in self.jobs.values() if job.ends_at is not None), default=None)

    def machine_went_down(self, server: str, why: str | None) -> None:
        """All that ran there is lost. `why` None: no controller had a hand in it."""
        for job in self.on(server):
            if why is not None:
                self._interrupt(job, why)
            self._take_off(job.name)
            self._story.tell("jobs", f"{job.name} is lost")

    # What the executor calls

    def look(self, server: Server, pool: NodePool, *, fresh: bool = True) -> Work:
        jobs = [
            Job(
                kind=job.kind,
                name=job.name,
                servers=job.servers,
                message=f"{job.kind} {job.name} is running",
                do_not_disrupt=job.do_not_disrupt,
                began=job.began,
                ends=job.ends_at if job.has_limit else None,
            )
            for job in self.on(server.name)
            if job.kind != "SlurmJob" or pool.spec.jobs.slurm is not None
        ]
        drain = self.drains.get(server.name)
        return Work(
            jobs=tuple(jobs),
            evictable=tuple(job.name for job in self.on(server.name) if job.kind != "SlurmJob"),
            slurm_state=None if not self.slurm or pool.spec.jobs.slurm is None else "IDLE+DRAIN" if drain else "IDLE",
            slurm_reason=drain,
            free=max(0.0, 1.0 - sum(job.share for job in self.on(server.name))),
        )

    def ended(self, pool: NodePool, servers: Collection[str], since: datetime) -> tuple[EndedJob, ...]:
        """The jobs that ended by themselves."""
        return tuple(
            EndedJob(
                kind=job.kind,
                key=job.name,
                name=job.name,
                servers=job.servers,
                began=began,
                ended=ended,
                succeeded=not job.fails,
                reason="Error" if job.fails else "Completed",
            )
            for job, began, ended in self._spans
            if ended is not None and ended > since and job.ends_at == ended and not set(servers).isdisjoint(job.servers)
        )

    def warn(self, server: Server, pool: NodePool, deadline: datetime, reason: str) -> int:
        for job in self.on(server.name):
            job.warned_for, job.warned_at = deadline, job.warned_at or self._clock.now
        return len(self.on(server.name))

    def close(self, server: Server, pool: NodePool, reason: str) -> SlurmDrained | None:
        if not self.slurm or pool.spec.jobs.slurm is None:
            return None
        present = self.drains.setdefault(server.name, reason)
        return SlurmDrained(node=server.name, reason=present, ours=present == reason)

    def evict(
        self, server: Server, pool: NodePool, *, spare: Collection[JobKind], force: bool
    ) -> tuple[EvictionBlocked, ...]:
        held = []
        for job in self.on(server.name):
            if job.kind in spare or (job.do_not_disrupt and not force):
                kind = "SlurmJob" if job.kind == "SlurmJob" else "Pod"
                held.append(EvictionBlocked(kind=kind, name=job.name, message="is not to be disrupted"))  # type: ignore[arg-type]
                continue
            if not job.being_evicted:
                self._interrupt(job, f"evicted from {server.name}")
                job.being_evicted = True
                job.ends_at = self._clock.now + GRACE
            held.append(EvictionBlocked(kind="Pod", name=job.name, message="is ending"))
        return tuple(held)

    def reopen(self, node: str, reason: str, pool: NodePool) -> bool:
        if self.drains.get(node) != reason:
            return False
        del self.drains[node]
        return True

    def reserve(self, server: Server, pool: NodePool, maintenance: str, begins: datetime) -> SlurmReserved | None:
        if not self.slurm or not self.reserves:
            return None
        before = self.reservations.get(maintenance)
        if before is None or before[1] > self._clock.now:
            self.reservations[maintenance] = (server.name, max(begins, self._clock.now))
        return SlurmReserved(node=server.name, maintenance=maintenance, begins=self.reservations[maintenance][1])

    def unreserve(self, node: str, maintenance: str, pool: NodePool) -> bool:
        return self.reservations.pop(maintenance, None) is not None

    def reserved(self, pool: NodePool, servers: Collection[str]) -> tuple[SlurmReserved, ...]:
        return tuple(
            SlurmReserved(node=node, maintenance=maintenance, begins=begins)
            for maintenance, (node, begins) in self.reservations.items()
            if node in servers
        )

    def _interrupt(self, job: FakeJob, why: str) -> None:
        if job.being_evicted:
            return  # it was judged when that began
        self.interrupted.append(job.name)
        self._story.tell("jobs", f"{job.name} is interrupted: {why}")
        self.judge_interruption(job, why)
