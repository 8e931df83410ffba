"""Servers that a NodePool has from another one at certain times."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.api.rules import NAME_RULES
from provisioner.api.schema import described
from provisioner.api.upgrade_strategy import MaintenanceWindow


@dataclass(frozen=True, kw_only=True)
class Borrowing:
    """Which servers, and when. Of two NodePools that want the same server the first by name has it."""

    node_pool_ref: str = described(
        "NodePool of the servers (their spec.nodePoolRef), to which they go back.", max_length=63, rules=NAME_RULES
    )
    selector: str = described("Labels of the Servers, such as example.com/lent=true.", min_length=1, max_length=512)
    windows: tuple[MaintenanceWindow, ...] = described(
        "When: from each opening on they move in as their jobs end, from its close on they go back likewise.",
        min_items=1,
        max_items=16,
    )
