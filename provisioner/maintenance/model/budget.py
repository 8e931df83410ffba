"""How many servers of a pool may be out of use at once. Pure.

What counts are Maintenances that have claimed their server and have not released it. A Node that failed by itself takes
no slot, and a Maintenance that failed has given its slot back: one broken machine does not halt everything.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from provisioner.api.nodes.maintenance import DISTURBING_PHASES, Maintenance, holding_maintenance
from provisioner.api.pools.node_pool import NodePool
from provisioner.rules.amounts import resolve_amount
from provisioner.rules.requests import age

DEFAULT_SHARE: Final = "10%"
SPARE: Final = 64
"""Of those that asked before, so many more are looked at than there is room for: some have had their turn."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """`allowed` servers of the pool may be out of use; `taken`: the Maintenances, other than one's own, that are.

    before: those that wait for nothing but the same budget and asked earlier, the first one first.
    fresh: it was read past every cache.
    """

    allowed: int
    taken: tuple[str, ...]
    before: tuple[str, ...] = ()
    fresh: bool = False

    @property
    def has_room(self) -> bool:
        return len(self.taken) < self.allowed


def allowed_unavailable(pool: NodePool, servers: int) -> int:
    """maxUnavailable of a pool of so many servers, the one that asks at least; 0 pauses."""
    amount = pool.spec.maintenance.max_unavailable
    return resolve_amount(DEFAULT_SHARE if amount is None else amount, max(1, servers))


def count_budget(
    pool: NodePool, members: Collection[str], disturbing: Iterable[Json], *, own: str, fresh: bool
) -> Budget:
    """The budget of `pool`, whose servers are `members`, as Maintenance `own` sees it; without those that asked before.

    disturbing: the Maintenances of all pools that are `part_of` a budget by disturbing their server.
    """
    taken = sorted(m["metadata"]["name"] for m in disturbing if m["spec"]["serverRef"] in members)
    return Budget(
        allowed=allowed_unavailable(pool, len(members)), taken=tuple(n for n in taken if n != own), fresh=fresh
    )


def asked_before(
    budget: Budget,
    members: Collection[str],
    waiting: Iterable[Json],
    maintenances_of: Callable[[str], Iterable[Maintenance]],
    own: Maintenance,
) -> tuple[str, ...]:
    """Who could claim now but for the budget, as their own status says, and asked before `own`: as many of them as can
    matter, the first one first.

    waiting: the Maintenances of all pools that are `part_of` a budget by waiting for it.
    """
    most = budget.allowed - len(budget.taken) + SPARE
    elder = [m for m in waiting if m["spec"]["serverRef"] in members and age_of(m) < age(own)]
    first = heapq.nsmallest(most, elder, key=age_of)
    return tuple(name for m in first if _holds(name := m["metadata"]["name"], m["spec"]["serverRef"], maintenances_of))


def part_of(maintenance: Json) -> Literal["Disturbs", "Waits"] | None:
    """Which part a Maintenance has in its pool's budget: it has claimed its server, or waits for nothing but the budget
    or those that come before it."""
    status = maintenance.get("status") or {}
    if status.get("phase") in DISTURBING_PHASES:
        return "Disturbs"
    kinds = {blocker.get("kind") for blocker in status.get("blockers") or ()}
    return "Waits" if status.get("phase") == "Waiting" and kinds and kinds <= {"Budget", "Maintenance"} else None


def age_of(maintenance: Json) -> tuple[str, int, str]:
    """`provisioner.rules.requests.age`, of a Maintenance's JSON."""
    meta = maintenance["metadata"]
    return meta.get("creationTimestamp") or "", len(meta["name"]), meta["name"]


def _holds(name: str, server: str, maintenances_of: Callable[[str], Iterable[Maintenance]]) -> bool:
    holding = holding_maintenance(maintenances_of(server), server)
    return holding is not None and holding.name == name
