"""Who decides which servers are taken out of use: our planner, and what peers' documents say that they do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol

from provisioner.api.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.fleet import Fleet, Member, Occupancy
from provisioner.rollout.interrupting import may_be_ended_from
from provisioner.rollout.plan import plan
from provisioner.rollout.simulate.cluster import Cluster

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment that 0 seconds of a simulation stand for."""
EPOCH_SECONDS: Final = EPOCH.timestamp()

ServerState = Literal["Outdated", "Updating", "Updated"]


@dataclass(frozen=True, kw_only=True)
class View:
    """A simulated pool at one moment. states and since: of each server. began: when the rollout did, in seconds.

    changed: servers of which a policy may think differently now than when it was asked last; all, the first time.
    """

    cluster: Cluster
    states: Sequence[ServerState]
    since: Sequence[float]
    changed: Collection[int]
    now: float
    began: float
    attempt: float


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a policy wants. claims: servers to reboot now; jobs that still run there are interrupted and queued again.
    interruptions: servers to reboot once they are empty, or at that moment, in seconds; they take no new job from now.

    again: when to ask again at the latest, in seconds; None if only a change of the cluster matters.
    """

    claims: Sequence[int] = ()
    interruptions: Sequence[tuple[int, float]] = ()
    closed: frozenset[int] = field(default_factory=frozenset)
    steered: frozenset[int] = field(default_factory=frozenset)
    again: float | None = None


class Policy(Protocol):
    """Asked after every change that may matter."""

    name: str

    def decide(self, view: View) -> Orders: ...


class Planner:
    """The planner of this project, as a controller would ask it."""

    def __init__(self, strategy: UpgradeStrategy) -> None:
        self.name = "provisioner" + (", closes stragglers" if strategy.stragglers is not None else "")
        self.name += ", has a deadline" if strategy.deadline is not None else ""
        self.name += ", steers no jobs" if not strategy.steer_jobs else ""
        self._strategy = strategy
        self._members: list[Member] = []
        self._closed: set[int] = set()
        self._passed = 0

    def decide(self, view: View) -> Orders:
        answer = plan(self._fleet(view), self._strategy, moment(view.now))
        self._passed = answer.stage.passed
        closed = {int(name) for name in answer.closed}
        for server in self._closed ^ closed:
            self._members[server] = replace(self._members[server], closed=server in closed)
        self._closed = closed
        again = (answer.again - EPOCH).total_seconds() if answer.again is not None else None
        return Orders(
            claims=[int(name) for name in answer.claims],
            interruptions=[(int(each.name), each.at - EPOCH_SECONDS) for each in answer.interruptions],
            closed=frozenset(closed),
            steered=frozenset(map(int, answer.steered)),
            again=again,
        )

    def _interruptible(self, began: float, youngest: float) -> float | None:
        return may_be_ended_from(self._strategy.deadline, EPOCH_SECONDS + began, EPOCH_SECONDS + youngest)

    def _fleet(self, view: View) -> Fleet:
        cluster = view.cluster
        self._members = self._members or [Member(name=str(s), state="Outdated") for s in range(cluster.servers)]
        for server in view.changed:
            state, on = view.states[server], list(cluster.on[server].values())
            runs = None
            if on and state == "Outdated":
                runs = Occupancy(
                    jobs=tuple(str(run.number) for run in on),
                    free=cluster.free[server] / cluster.gpus,
                    first=EPOCH_SECONDS + min(run.started for run in on),
                    interruptible=self._interruptible(view.began, max(run.started for run in on)),
                )
            self._members[server] = Member(
                name=str(server),
                state=state,
                runs=runs,
                closed=server in self._closed,
                since=EPOCH_SECONDS + view.since[server] if state == "Updated" else None,
            )
        return Fleet(
            members=self._members,
            began=EPOCH_SECONDS + view.began,
            free=sum(s == "Updated" and not on for s, on in zip(view.states, cluster.on, strict=True)),
            passed=self._passed,
            attempt=timedelta(seconds=view.attempt),
        )


def moment(seconds: float) -> datetime:
    """The moment that so many seconds of a simulation stand for."""
    return EPOCH + timedelta(seconds=seconds)


class IdleOnly:
    """Servers are rebooted when they run nothing, so many at once; none is closed, and no job is steered away.

    A reference, not a peer: what a rollout takes that leaves it to the scheduler where jobs run.
    """

    def __init__(self, *, parallel: int) -> None:
        self.name, self._parallel = "idle-only", parallel

    def decide(self, view: View) -> Orders:
        free = self._parallel - sum(state == "Updating" for state in view.states)
        idle = [s for s, state in enumerate(view.states) if state == "Outdated" and not view.cluster.on[s]]
        return Orders(claims=idle[: max(0, free)])


class Kured:
    """kured: each server asks once a period whether it may; so many at once as there are locks, one by default.

    blocking: it is told of jobs by --blocking-pod-selector, and tries again after the period while one runs; else it
    drains the server, whatever runs there. Its daemons start at moments of their own, spread over the period. A tick
    that found the locks held is taken when one is free, which is sooner than kured has it. Not simulated: its option
    --prefer-no-schedule-taint. Source: kured's documentation, "Configuration".
    """

    def __init__(self, *, blocking: bool, concurrency: int = 1, period: float = 3600.0) -> None:
        self.name = f"kured{', blocking' if blocking else ''}{f', {concurrency} at once' if concurrency > 1 else ''}"
        self._blocking, self._concurrency, self._period = blocking, concurrency, period
        self._ticked = 0

    def decide(self, view: View) -> Orders:
        servers = view.cluster.servers
        each = self._period / servers
        # A tick of this very moment is over, however the moment was rounded.
        ticks, self._ticked = self._ticked, int((view.now - view.began) / each + 1e-6) + 1
        free = self._concurrency - sum(state == "Updating" for state in view.states)
        claims: list[int] = []
        for tick in range(max(ticks, self._ticked - servers), self._ticked):
            server = tick % servers
            may = not self._blocking or not view.cluster.on[server]
            if len(claims) < free and may and view.states[server] == "Outdated":
                claims.append(server)
        # While all locks are held nothing can be done before a server is back, of which a policy is told.
        held = len(claims) >= free
        return Orders(claims=claims, again=None if held else view.began + self._ticked * each)


class DrainInOrder:
    """Servers are closed one after the other, so many at a time, and rebooted when their jobs have ended.

    idle_first: those that run nothing are taken first. Source: SUNK's documentation, "Upgrade a SUNK cluster": a
    NodeSet rolls by safe deletion; the Slurm node is drained, its pod replaced once it is drained and idle.
    Else in the order of the list. Source: NVIDIA GPU Operator, "GPU Driver Upgrades" (k8s-operator-libs): cordon, wait
    for jobs without a time-out, upgrade; so many at once as maxParallelUpgrades says. With both, a server that waits
    for its jobs takes one of these places.
    """

    def __init__(self, name: str, *, parallel: int, idle_first: bool) -> None:
        self.name, self._parallel, self._idle_first = name, parallel, idle_first
        self._taken: dict[int, None] = {}

    def decide(self, view: View) -> Orders:
        on, states = view.cluster.on, view.states
        self._taken = {server: None for server in self._taken if states[server] != "Updated"}
        if len(self._taken) < self._parallel:
            rest = [s for s, state in enumerate(states) if state == "Outdated" and s not in self._taken]
            if self._idle_first:
                rest.sort(key=lambda server: bool(on[server]))
            self._taken |= dict.fromkeys(rest[: self._parallel - len(self._taken)])
        waiting = [server for server in self._taken if states[server] == "Outdated"]
        return Orders(claims=[s for s in waiting if not on[s]], closed=frozenset(s for s in waiting if on[s]))
