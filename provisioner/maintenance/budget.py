"""How many servers of a pool may be out of use at once. Pure.

What counts are Maintenances that have claimed their server and have not released it. A Node that failed by itself takes
no slot, and a Maintenance that failed has given its slot back: one broken machine does not halt everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.api.maintenance import DISTURBING_PHASES, Maintenance
from provisioner.api.node_pool import NodePool

DEFAULT_SHARE: Final = "10%"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """`allowed` servers of the pool may be out of use; `taken`: the Maintenances, other than one's own, that are.

    fresh: it was read past every cache.
    """

    allowed: int
    taken: tuple[str, ...]
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
    members = set(servers)
    taken = sorted(
        m.name
        for m in maintenances
        if m.name != own and m.spec.server_ref in members and m.status.phase in DISTURBING_PHASES
    )
    return Budget(allowed=allowed_unavailable(pool, len(members)), taken=tuple(taken), fresh=fresh)
