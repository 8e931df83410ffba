"""What is said of the NetworkPool: pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from provisioner.api import NetworkClaim, NetworkPool
from provisioner.api.machinery.conditions import condition_of
from provisioner.api.network.network_pool import NetworkPoolStatus
from provisioner.network.control.claims.allocate import count_free


def pool_status(pool: NetworkPool, claims: Iterable[NetworkClaim], now: datetime) -> NetworkPoolStatus:
    """The whole status. claims: those of VNIs."""
    found = list(claims)
    released = sum(1 for each in found if each.status.released_time is not None)
    free = count_free(pool.spec.vni_ranges, (int(each.spec.value) for each in found))
    message = f"{free} identifiers are free"
    if not free:
        message = f"all identifiers are in use, {released} of them by VPCs that are gone: add a range to spec.vniRanges"
    reason = "Available" if free else "Exhausted"
    return NetworkPoolStatus(
        taken_vnis=len(found) - released,
        quarantined_vnis=released,
        free_vnis=free,
        conditions=(condition_of(pool, "Ready", free > 0, reason, message, now),),
    )
