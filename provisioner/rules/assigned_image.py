"""Which Image a server shall boot. Pure.

A NodePool's imageRef is a wish. What a server boots is the Image that is assigned to it (`status.assignedImageRef`); if
none is, for it was never in use, the pool's released Image, which has passed the canary. The rollout of the pool alone
writes the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.api.maintenance import FINAL_PHASES, Maintenance
from provisioner.api.node_pool import NodePool
from provisioner.api.server import Server
from provisioner.rules.boot_order import is_settled


def next_image_name(server: Server | None, pool: NodePool | None, maintenance: Maintenance | None = None) -> str | None:
    """The Image of a boot that is ordered now: the one that the Maintenance boots while that is under way; else the
    assigned one; else the pool's released one. What a Maintenance asked for does not outlive it."""
    attempt = maintenance.status.reboot if maintenance is not None else None
    if maintenance is not None and attempt is not None and maintenance.status.phase not in FINAL_PHASES:
        return attempt.image_ref
    if server is not None and server.status.assigned_image_ref is not None:
        return server.status.assigned_image_ref
    return released_image_name(pool)


def released_image_name(pool: NodePool | None) -> str | None:
    """The Image of servers that have nothing to lose; the wanted one of a pool that has released none yet."""
    if pool is None:
        return None
    released = pool.status.released
    return released.image_ref if released is not None else pool.spec.image_ref


def images_of_pool(pool: Mapping[str, Any] | None) -> frozenset[str]:
    """The Images that a NodePool, as JSON, has servers boot: the wanted and the released one."""
    body = pool or {}
    released = (body.get("status") or {}).get("released") or {}
    return frozenset(name for name in ((body.get("spec") or {}).get("imageRef"), released.get("imageRef")) if name)


def boots_of_pool(pool: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """What of a NodePool, as JSON, a boot of its servers depends on: not how many of them are updated."""
    body = pool or {}
    return pool is None, body.get("spec"), images_of_pool(body)


def current_image_name(server: Server, pool: NodePool | None) -> str | None:
    """The Image that a machine gets which boots now: that of the boot order until its boot is over, and then, or where
    nothing was ordered yet, the one that an order would name."""
    order = server.status.order
    if order is not None and order.image_ref is not None and not is_settled(server):
        return order.image_ref
    return next_image_name(server, pool)
