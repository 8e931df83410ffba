"""How many servers of a pool may be out of use at once. Pure.

What counts are Maintenances that have claimed their server and have not released it. A Node that failed by itself takes
no slot, and a Maintenance that failed has given its slot back: one broken machine does not halt everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.api.maintenance import DISTURBING_PHASES, Maintenance, holding_maintenance
from provisioner.api.node_pool import NodePool
from provisioner.rules.requests import age

DEFAULT_SHARE: Final = "10%"


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
    """maxUnavailable of a pool of so many servers; a share is rounded up, and at least one is always allowed."""
    text = pool.spec.maintenance.max_unavailable
    if text is None:
        text = DEFAULT_SHARE
    if isinstance(text, str) and text.endswith("%"):
        return max(1, math.ceil(servers * int(text[:-1]) / 100))
    return max(1, int(text))


def count_budget(
    pool: NodePool, servers: Iterable[str], maintenances: Iterable[Maintenance], *, own: str, fresh: bool
) -> Budget:
    """The budget of `pool`, whose servers are named, as Maintenance `own` sees it."""
    members, everything = set(servers), list(maintenances)
    taken = sorted(
        m.name
        for m in everything
        if m.name != own and m.spec.server_ref in members and m.status.phase in DISTURBING_PHASES
    )
    allowed = allowed_unavailable(pool, len(members))
    return Budget(allowed=allowed, taken=tuple(taken), before=_asked_before(members, everything, own), fresh=fresh)


def _asked_before(members: set[str], maintenances: list[Maintenance], own: str) -> tuple[str, ...]:
    """Who could claim now but for the budget, as their own status says, and asked before `own`."""
    mine = next((m for m in maintenances if m.name == own), None)
    if mine is None:
        return ()
    candidates = [m for m in maintenances if m.spec.server_ref in members and _waits_for_budget_alone(m)]
    holding = [m for m in candidates if holding_maintenance(maintenances, m.spec.server_ref) == m]
    return tuple(m.name for m in sorted(holding, key=age) if age(m) < age(mine))


def _waits_for_budget_alone(m: Maintenance) -> bool:
    kinds = {b.kind for b in m.status.blockers}
    return m.status.phase == "Waiting" and bool(kinds) and kinds <= {"Budget", "Maintenance"}
