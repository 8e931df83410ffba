"""Whether controllers lead: what waits for one goes on only while somebody renews its Lease. One request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import read_time
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, SYSTEM

OF_ALL: Final = "provisioner-controller"
"""Lease of the process that runs all groups."""
SERVER_GROUPS: Final = ("inventory", "orders", "join", "approver", "health", "maintenance", "rollout", "power")
"""Groups of controllers that servers wait for; with a Lease each, where processes run some of them."""
AWAY: Final = timedelta(seconds=60)
"""A Lease counts for so long after its last renewal: a leader hands over in less, and clocks differ by less."""


@dataclass(frozen=True)
class NoLeader:
    """Nobody renews the Leases of `groups`."""

    groups: tuple[str, ...]

    @property
    def words(self) -> str:
        if self.groups == SERVER_GROUPS:
            return "no controller leads"
        return f"no controller leads group {', '.join(self.groups)}"

    @property
    def remedy(self) -> str:
        return (
            f"start provisioner controller, or see why it does not lead: kubectl -n {SYSTEM} get leases,pods; its log "
            "has the reason"
        )

    @property
    def sentence(self) -> str:
        """With what follows from it."""
        return f"{self.words}, so nothing that waits goes on: {self.remedy}"


def read_no_leader(cluster: Cluster, now: datetime) -> NoLeader | None:
    """Which groups nobody leads; None if none, or if the Leases cannot be read."""
    try:
        leases = cluster.list(LEASES, namespace=SYSTEM).items
    except ProvisionerError:
        return None
    return find_no_leader(leases, now)


def find_no_leader(leases: Iterable[Mapping[str, Any]], now: datetime) -> NoLeader | None:
    """Of the Leases, as JSON. Pure."""
    held = {str(lease["metadata"]["name"]) for lease in leases if _is_held(lease, now)}
    if OF_ALL in held:
        return None
    groups = tuple(group for group in SERVER_GROUPS if f"provisioner-{group}" not in held)
    return NoLeader(groups) if groups else None


def _is_held(lease: Mapping[str, Any], now: datetime) -> bool:
    renewed = read_time((lease.get("spec") or {}).get("renewTime"))
    return renewed is not None and now - renewed < AWAY
