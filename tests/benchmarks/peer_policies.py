"""What peers' documents say that they do in a rollout, for the simulator."""

from __future__ import annotations

from typing import Final

from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.simulate.policy import Orders, Policy, View
from provisioner.rollout.simulate.run import Scenario
from provisioner.rollout.simulate.setup import POLICIES

PEER_NAMES: Final = ("idle-first", "in-order", "kured-blocking", "kured")


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


def policy_named(name: str, scenario: Scenario, strategy: UpgradeStrategy) -> Policy:
    """A policy of ours or one of PEER_NAMES. Peers may take as many servers out of use at once as the strategy allows;
    kured takes one, which holds its lock."""
    match name:
        case "idle-first":
            return DrainInOrder("idle-first (SUNK)", parallel=scenario.parallel, idle_first=True)
        case "in-order":
            return DrainInOrder("in-order (k8s-operator-libs)", parallel=scenario.parallel, idle_first=False)
        case "kured" | "kured-blocking":
            return Kured(blocking=name == "kured-blocking")
        case _:
            return POLICIES[name](scenario, strategy)
