"""Who decides which servers are taken out of use: our planner, or a reference to compare it with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol

from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.fleet import Member, Occupancy, PoolSnapshot
from provisioner.rollout.interrupting import may_be_ended_from
from provisioner.rollout.plan import plan
from provisioner.rollout.simulate.cluster import SimulatedCluster

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The moment that 0 seconds of a simulation stand for."""
EPOCH_SECONDS: Final = EPOCH.timestamp()

ServerState = Literal["Outdated", "Updating", "Updated"]


@dataclass(frozen=True, kw_only=True)
class View:
    """A simulated pool at one moment. states and since: of each server. began: when the rollout did, in seconds.

    changed: servers of which a policy may think differently now than when it was asked last; all, the first time.
    """

    cluster: SimulatedCluster
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

    def _fleet(self, view: View) -> PoolSnapshot:
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
        return PoolSnapshot(
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
