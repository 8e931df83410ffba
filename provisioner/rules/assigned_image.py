"""Which Image a server shall boot. Pure.

A NodePool's imageRef is a wish. What a server boots is the Image that is assigned to it (`status.assignedImageRef`),
which the inventory controller alone writes.
"""

from __future__ import annotations

from provisioner.api.maintenance import FINAL_PHASES, Maintenance
from provisioner.api.node_pool import NodePool
from provisioner.api.server import Server
from provisioner.rules.boot_order import is_settled


def next_image_name(server: Server | None, pool: NodePool | None, maintenance: Maintenance | None = None) -> str | None:
    """The Image of a boot that is ordered now: the one that the Maintenance boots while that is under way; else the
    assigned one; else, where none was assigned yet, the pool's. What a Maintenance asked for does not outlive it."""
    attempt = maintenance.status.reboot if maintenance is not None else None
    if maintenance is not None and attempt is not None and maintenance.status.phase not in FINAL_PHASES:
        return attempt.image_ref
    if server is not None and server.status.assigned_image_ref is not None:
        return server.status.assigned_image_ref
    return pool.spec.image_ref if pool is not None else None


def current_image_name(server: Server, pool: NodePool | None) -> str | None:
    """The Image that a machine gets which boots now: that of the boot order until its boot is over, and then, or where
    nothing was ordered yet, the one that an order would name."""
    order = server.status.order
    if order is not None and order.image_ref is not None and not is_settled(server):
        return order.image_ref
    return next_image_name(server, pool)


def assign_image(server: Server, pool: NodePool | None) -> str | None:
    """The Image to assign: that of the accepted server's pool. A pool that does not exist takes nothing away."""
    if server.spec.acceptance != "Accepted" or server.spec.node_pool_ref is None:
        return None
    return pool.spec.image_ref if pool is not None else server.status.assigned_image_ref
