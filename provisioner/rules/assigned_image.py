"""Which Image a server shall boot. Pure.

A NodePool's imageRef is a wish. What a server boots is the Image that is assigned to it (`status.assignedImageRef`); if
none is, for it was never in use, the pool's released Image, which has passed the canary. The rollout of the pool alone
writes the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from provisioner.api.maintenance import FINAL_PHASES, Maintenance
from provisioner.api.node_pool import NodePool
from provisioner.api.server import Server
from provisioner.rules.boot_order import is_settled

ImageRule = Literal["BootOrder", "Maintenance", "Assigned", "Released", "Wanted", "NoNodePool"]
"""Whose word it is which Image a server boots: its boot order's, that of the Maintenance under way, what is assigned to
the server, what its pool has released, or what a pool that has released none yet wants."""


class ChosenImage(NamedTuple):
    """Name of an Image, and which rule names it; None: nothing does."""

    name: str | None
    rule: ImageRule


def next_image(server: Server | None, pool: NodePool | None, maintenance: Maintenance | None = None) -> ChosenImage:
    """The Image of a boot that is ordered now: the one that the Maintenance boots while that is under way; else the
    assigned one; else the pool's released one. What a Maintenance asked for does not outlive it."""
    attempt = maintenance.status.reboot if maintenance is not None else None
    if maintenance is not None and attempt is not None and maintenance.status.phase not in FINAL_PHASES:
        return ChosenImage(attempt.image_ref, "Maintenance")
    if server is not None and server.status.assigned_image_ref is not None:
        return ChosenImage(server.status.assigned_image_ref, "Assigned")
    return released_image(pool)


def next_image_name(server: Server | None, pool: NodePool | None, maintenance: Maintenance | None = None) -> str | None:
    """The name that `next_image` tells."""
    return next_image(server, pool, maintenance).name


def released_image(pool: NodePool | None) -> ChosenImage:
    """The Image of servers that have nothing to lose; the wanted one of a pool that has released none yet."""
    if pool is None:
        return ChosenImage(None, "NoNodePool")
    released = pool.status.released
    if released is not None:
        return ChosenImage(released.image_ref, "Released")
    return ChosenImage(pool.spec.image_ref, "Wanted")


def released_image_name(pool: NodePool | None) -> str | None:
    """The name that `released_image` tells."""
    return released_image(pool).name


def images_of_pool(pool: Mapping[str, Any] | None) -> frozenset[str]:
    """The Images that a NodePool, as JSON, has servers boot: the wanted and the released one."""
    body = pool or {}
    released = (body.get("status") or {}).get("released") or {}
    return frozenset(name for name in ((body.get("spec") or {}).get("imageRef"), released.get("imageRef")) if name)


def boots_of_pool(pool: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """What of a NodePool, as JSON, a boot of its servers depends on: not how many of them are updated."""
    body = pool or {}
    return pool is None, body.get("spec"), images_of_pool(body)


def current_image(server: Server, pool: NodePool | None) -> ChosenImage:
    """The Image that a machine gets which boots now: that of the boot order until its boot is over, and then, or where
    nothing was ordered yet, the one that an order would name."""
    order = server.status.order
    if order is not None and order.image_ref is not None and not is_settled(server):
        return ChosenImage(order.image_ref, "BootOrder")
    return next_image(server, pool)


def current_image_name(server: Server, pool: NodePool | None) -> str | None:
    """The name that `current_image` tells."""
    return current_image(server, pool).name
