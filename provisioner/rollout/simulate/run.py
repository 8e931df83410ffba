"""One simulated rollout: jobs come and go, a policy decides, and what it cost is added up. Deterministic."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.rollout.completion import lower_bound
from provisioner.rollout.simulate.cluster import CLOSED, OPEN, STEERED, Openness, SimulatedCluster
from provisioner.rollout.simulate.policy import Policy, ServerState, View
from provisioner.rollout.simulate.trace import TraceJob

REACTION_SECONDS: Final = 2.0
"""From a change to the orders that follow from it; meanwhile the scheduler fills what is free."""

_STRIDE_SECONDS: Final = 3600.0
_END, _BACK, _DEADLINE, _DECIDE = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What is simulated. began: when the rollout begins, in seconds of the trace; until then the cluster only fills.

    attempt: how long a server is out of use for its new image, in seconds. longest: after how many seconds a rollout
    that has not ended is given up.
    """

    jobs: Sequence[TraceJob]
    servers: int
    gpus: int
    began: float
    attempt: float
    parallel: int
    longest: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The pool at one moment, for a plot. time: seconds since the rollout began; the rest: how many servers."""

    time: float
    updated: int
    updating: int
    idle: int
    busy: int


@dataclass(frozen=True, kw_only=True)
class SimulatedRollout:
    """What a rollout took and cost.

    makespan: seconds from its begin until every server had the image; None if it was given up, with `left` servers
    without it. bound: seconds that any takes at least which interrupts nothing, by the jobs that ran when it began.
    reached: the same bound by the moments at which each server first ran nothing in this very rollout: what was left to
    gain once jobs had been placed as they were.
    unavoidable: GPU-seconds during which servers were on their way to the image. closed_idle: GPU-seconds during which
    GPUs had no job while their server was closed to new ones; extra: those of them for which jobs queued.
    starts: when each job of the trace was started first, of all that were submitted until `over`, seconds of the trace.
    lost: GPU-seconds of work that was interrupted.
    """

    policy: str
    makespan: float | None
    left: int
    bound: float
    reached: float
    interrupted: int
    lost: float
    unavoidable: float
    closed_idle: float
    extra: float
    over: float
    starts: dict[int, float] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()


class _Simulation:
    def __init__(self, scenario: Scenario, policy: Policy | None) -> None:
        self._scenario, self._policy = scenario, policy
        self._cluster = SimulatedCluster(scenario.servers, scenario.gpus, list(scenario.jobs))
        self._events: list[tuple[float, int, int, int]] = []
        self._number = 0
        self._next_job = 0
        self._asks_at: float | None = None
        self._closed_idle: dict[int, int] = {}
        self._idle_closed = 0
        self._empty_since: list[float | None] = [None] * scenario.servers
        self._seen: list[tuple[bool, bool]] = [(True, False)] * scenario.servers
        self._changed = set(range(scenario.servers))
        self._matters = False
        self._told: set[int] = set()
        self._kept: dict[int, Openness] = {}
        self.states: list[ServerState] = ["Outdated"] * scenario.servers
        self.since = [0.0] * scenario.servers
        self.now = 0.0
        self.starts: dict[int, float] = {}
        self.interrupted, self.lost, self.closed_idle, self.extra = 0, 0.0, 0.0, 0.0
        self.updating = self.updated = 0
        self.samples: list[Sample] = []

    def run_to(self, end: float, *, deciding: bool) -> None:
        """Let time pass until `end`, or until all servers are updated."""
        jobs = self._scenario.jobs
        while True:
            due = self._events[0][0] if self._events else float("inf")
            comes = jobs[self._next_job].submitted if self._next_job < len(jobs) else float("inf")
            moment = min(due, comes)
            if moment > end or moment == float("inf"):
                self._pass(end)
                return
            self._pass(moment)
            self._process(moment, deciding=deciding)
            for run in self._cluster.schedule(moment):
                self.starts.setdefault(run.number, moment)
                self._push(run.ends, _END, run.number)
                self._recount(run.servers)
            if deciding and self._matters:
                self._ask(moment + REACTION_SECONDS)
            if deciding and self.updated == self._scenario.servers:
                return

    def run_until_started(self, submitted: float, latest: float) -> None:
        """Let time pass, with no more orders, until every job that was submitted by then has started, or `latest`."""
        while self.now < latest and any(
            self._scenario.jobs[queue[0]].submitted <= submitted for queue in self._cluster.queued.values() if queue
        ):
            self.run_to(min(self.now + _STRIDE_SECONDS, latest), deciding=False)

    def break_ties(self, ties: random.Random) -> None:
        """From now on chance decides which of equally full servers takes a job."""
        self._cluster.ties = ties

    def begin(self) -> None:
        """The rollout begins now."""
        self._empty_since = [None if on else self.now for on in self._cluster.on]
        self._sample()
        self._ask(self.now)

    def first_empty(self) -> list[float]:
        """When each server first ran nothing, in seconds since the rollout began."""
        return [moment - self._scenario.began for moment in self._empty_since if moment is not None]

    def releases(self) -> list[float]:
        """When the last of the jobs that run now ends on each server, in seconds from now."""
        return [max((run.ends - self.now for run in on.values()), default=0.0) for on in self._cluster.on]

    def _process(self, moment: float, *, deciding: bool) -> None:
        jobs = self._scenario.jobs
        while self._next_job < len(jobs) and jobs[self._next_job].submitted <= moment:
            self._cluster.submit(self._next_job)
            self._next_job += 1
        while self._events and self._events[0][0] <= moment:
            _, _, kind, subject = heapq.heappop(self._events)
            if kind == _END:
                run = self._cluster.runs.get(subject)
                if run is not None and run.ends <= moment:  # else it was interrupted, and runs anew or waits
                    self._cluster.end(subject)
                    self._recount(run.servers)
                    self._begin_emptied(run.servers)
            elif kind == _BACK:
                self.states[subject], self.since[subject] = "Updated", moment
                self.updating, self.updated = self.updating - 1, self.updated + 1
                self._changed.add(subject)
                self._matters = True
                self._open(subject, OPEN)
                self._sample()
            elif kind == _DEADLINE:
                if subject in self._told:
                    self._interrupt(subject)
            elif deciding and self._asks_at is not None and moment >= self._asks_at:
                self._asks_at = None
                self._decide()

    def _decide(self) -> None:
        scenario, cluster = self._scenario, self._cluster
        assert self._policy is not None  # noqa: S101 - nothing is asked without one
        view = View(
            cluster=cluster,
            states=self.states,
            since=self.since,
            changed=self._changed,
            now=self.now,
            began=scenario.began,
            attempt=scenario.attempt,
        )
        orders = self._policy.decide(view)
        self._changed, self._matters = set(), False
        for server in orders.claims:
            if self.states[server] == "Outdated":
                self._tell(server)
                self._interrupt(server)
        for server, at in orders.interruptions:
            if self.states[server] == "Outdated":
                self._tell(server)
                self._push(at, _DEADLINE, server)
        kept: dict[int, Openness] = dict.fromkeys(orders.steered, STEERED) | dict.fromkeys(orders.closed, CLOSED)
        for server in self._kept.keys() | kept.keys():
            if self.states[server] == "Outdated" and self._kept.get(server) != kept.get(server):
                self._open(server, kept.get(server, OPEN))
        self._kept = kept
        if orders.again is not None:
            if orders.again <= self.now:
                raise AssertionError(f"policy {self._policy.name} asks to be asked at a moment that is over")
            self._ask(orders.again)

    def _tell(self, server: int) -> None:
        """It takes no new job, and is updated when it is empty."""
        self.states[server] = "Updating"
        self._told.add(server)
        self._changed.add(server)
        self._open(server, CLOSED)

    def _interrupt(self, server: int) -> None:
        """Update a server that was told, whatever runs there."""
        for number in list(self._cluster.on[server]):
            run = self._cluster.end(number)
            self.interrupted += 1
            self.lost += (self.now - run.started) * run.per_server * len(run.servers)
            self._recount(run.servers)
            self._cluster.submit(number, first=True)
            self._begin_emptied(run.servers)
        self._begin_emptied((server,))

    def _begin_emptied(self, servers: Iterable[int]) -> None:
        for server in servers:
            if server in self._told and not self._cluster.on[server]:
                self._told.discard(server)
                self.updating += 1
                self._recount((server,))
                self._push(self.now + self._scenario.attempt, _BACK, server)
                self._sample()

    def _ask(self, moment: float) -> None:
        if self._asks_at is None or moment < self._asks_at:
            self._asks_at = moment
            self._push(moment, _DECIDE, 0)

    def _open(self, server: int, openness: Openness) -> None:
        self._cluster.set_openness(server, openness)
        self._recount((server,))

    def _recount(self, servers: Sequence[int]) -> None:
        """Note what a policy may care about, and the GPUs that idle on closed servers which wait."""
        cluster = self._cluster
        for server in servers:
            running = len(cluster.on[server])
            waits = self.states[server] == "Outdated" or server in self._told
            seen = (running == 0, waits and running == 1 and cluster.free[server] == 0)
            if seen != self._seen[server]:
                self._seen[server] = seen
                self._matters = True
            if not waits:
                self._idle_closed -= self._closed_idle.pop(server, 0)
                continue
            if not running and self._empty_since[server] is None:
                self._empty_since[server] = self.now
            self._changed.add(server)
            idle = cluster.free[server] if cluster.openness[server] == CLOSED else 0
            self._idle_closed += idle - self._closed_idle.get(server, 0)
            self._closed_idle[server] = idle

    def _pass(self, moment: float) -> None:
        self.closed_idle += (moment - self.now) * self._idle_closed
        self.extra += (moment - self.now) * min(self._idle_closed, self._cluster.queued_gpus)
        self.now = moment

    def _push(self, moment: float, kind: int, subject: int) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, kind, subject))

    def _sample(self) -> None:
        idle = sum(not on and state == "Outdated" for on, state in zip(self._cluster.on, self.states, strict=True))
        busy = self._scenario.servers - self.updated - self.updating - idle
        time = self.now - self._scenario.began
        self.samples.append(Sample(time=time, updated=self.updated, updating=self.updating, idle=idle, busy=busy))


def simulate(scenario: Scenario, policy: Policy) -> SimulatedRollout:
    """One rollout by `policy`, from the trace's begin until every server has the image or it is given up, and on until
    each job that was submitted meanwhile has started."""
    simulation = _Simulation(scenario, policy)
    simulation.run_to(scenario.began, deciding=False)
    bound = lower_bound(simulation.releases(), scenario.parallel, scenario.attempt)
    simulation.begin()
    simulation.run_to(scenario.began + scenario.longest, deciding=True)
    done = simulation.updated == scenario.servers
    over = simulation.now
    simulation.run_until_started(over, scenario.began + 2 * scenario.longest)
    return SimulatedRollout(
        policy=policy.name,
        makespan=over - scenario.began if done else None,
        left=scenario.servers - simulation.updated,
        bound=bound,
        reached=lower_bound(simulation.first_empty(), scenario.parallel, scenario.attempt),
        interrupted=simulation.interrupted,
        lost=simulation.lost,
        unavoidable=(simulation.updated + simulation.updating) * scenario.gpus * scenario.attempt,
        closed_idle=simulation.closed_idle,
        extra=simulation.extra,
        over=over,
        starts=simulation.starts,
        samples=tuple(simulation.samples),
    )


def simulate_without(scenario: Scenario, until: float, ties: random.Random | None = None) -> dict[int, float]:
    """When each job starts if there is no rollout, of all that are submitted until that moment of the trace.

    ties: decides between equally full servers, from the moment on at which the rollout would begin.
    """
    simulation = _Simulation(scenario, None)
    simulation.run_to(scenario.began, deciding=False)
    if ties is not None:
        simulation.break_ties(ties)
    simulation.run_to(until, deciding=False)
    simulation.run_until_started(until, scenario.began + 2 * scenario.longest)
    return simulation.starts
