"""A cluster that runs jobs: servers with GPUs, a queue, and a scheduler. Time is what the caller says it is.

The scheduler: first in, first out, and whoever fits goes ahead of who does not. A job that asks for as many GPUs as a
server has, or fewer, runs on one, the fullest that it fits (best fit); one that asks for more runs on whole servers, on
all of them or none. Servers that are steered away from (PreferNoSchedule) are taken only where no other will do;
closed ones (NoSchedule, Slurm's drain) never.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal

from provisioner.rollout.simulate.trace import TraceJob

Openness = Literal[0, 1, 2]
OPEN: Final[Openness] = 0
STEERED: Final[Openness] = 1
CLOSED: Final[Openness] = 2


@dataclass(slots=True)
class Run:
    """A job that runs. number: which of the trace's jobs. per_server: GPUs that it holds on each of `servers`."""

    number: int
    servers: tuple[int, ...]
    per_server: int
    started: float
    ends: float


class SimulatedCluster:
    """Servers by number, from 0. ties: picks one of equally full servers; if None, it is the one that has been as full
    as that for longest."""

    def __init__(self, servers: int, gpus: int, jobs: list[TraceJob]) -> None:
        self.servers, self.gpus, self._jobs = servers, gpus, jobs
        self.free = [gpus] * servers
        self.openness: list[Openness] = [OPEN] * servers
        self.runs: dict[int, Run] = {}
        self.on: list[dict[int, Run]] = [{} for _ in range(servers)]
        self.queued: dict[int, deque[int]] = {}
        self.queued_gpus = 0
        self.ties: random.Random | None = None
        self._buckets: list[list[dict[int, None]]] = [[{} for _ in range(gpus + 1)] for _ in range(2)]
        for server in range(servers):
            self._buckets[OPEN][gpus][server] = None

    def submit(self, number: int, *, first: bool = False) -> None:
        """Queue a job; `first` before all others of its size."""
        queue = self.queued.setdefault(self._jobs[number].gpus, deque())
        queue.appendleft(number) if first else queue.append(number)
        self.queued_gpus += self._jobs[number].gpus

    def set_openness(self, server: int, openness: Openness) -> None:
        if self.openness[server] != openness:
            self._leave(server)
            self.openness[server] = openness
            self._enter(server)

    def end(self, number: int) -> Run:
        """The job is over, or was interrupted."""
        run = self.runs.pop(number)
        for server in run.servers:
            self._leave(server)
            self.free[server] += run.per_server
            del self.on[server][number]
            self._enter(server)
        return run

    def schedule(self, now: float) -> list[Run]:
        """Start what fits; returns it."""
        started: list[Run] = []
        blocked: set[int] = set()
        while True:
            waiting = [size for size, queue in self.queued.items() if queue and size not in blocked]
            if not waiting:
                return started
            size = min(waiting, key=lambda size: self._jobs[self.queued[size][0]].submitted)
            servers = self._place(size)
            if servers is None:
                blocked.update(other for other in waiting if other >= size)
                continue
            number = self.queued[size].popleft()
            self.queued_gpus -= size
            started.append(self._start(number, servers, min(size, self.gpus), now))

    def _place(self, size: int) -> tuple[int, ...] | None:
        if size <= self.gpus:
            for buckets in self._buckets:
                for free in range(size, self.gpus + 1):
                    if buckets[free]:
                        return (self.ties.choice([*buckets[free]]) if self.ties else next(iter(buckets[free])),)
            return None
        count = -(-size // self.gpus)
        whole = [buckets[self.gpus] for buckets in self._buckets]
        if sum(map(len, whole)) < count:
            return None
        chosen: list[int] = []
        for bucket in whole:
            for server in bucket:
                if len(chosen) == count:
                    break
                chosen.append(server)
        return tuple(chosen)

    def _start(self, number: int, servers: tuple[int, ...], per_server: int, now: float) -> Run:
        run = Run(number, servers, per_server, now, now + self._jobs[number].duration)
        self.runs[number] = run
        for server in servers:
            self._leave(server)
            self.free[server] -= per_server
            self.on[server][number] = run
            self._enter(server)
        return run

    def _leave(self, server: int) -> None:
        openness = self.openness[server]
        if openness != CLOSED:
            del self._buckets[openness][self.free[server]][server]

    def _enter(self, server: int) -> None:
        openness = self.openness[server]
        if openness != CLOSED:
            self._buckets[openness][self.free[server]][server] = None
