"""Which Image a server shall boot. Pure.

A NodePool's imageRef is a wish. What a server boots is the Image that is assigned to it (`status.assignedImageRef`); if
none is, for it was never in use, the pool's released Image, which has passed the canary. The rollout of the pool alone
writes the two. A reboot that is ordered without naming an Image brings the wanted one as soon as all servers may
follow: else the rollout would reboot the server again right after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from provisioner.api.images.image import Image
from provisioner.api.machinery.conditions import find_condition, is_true
from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.server import Server
from provisioner.cluster.source import conditions_of
from provisioner.rules.boot_order import is_settled

PROGRESSING: Final = "Progressing"
"""The condition of a NodePool that says whether its rollout goes on."""
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


def ordered_image(server: Server | None, pool: NodePool | None, image: Image | None) -> ChosenImage:
    """The Image of a reboot that is ordered for `pool` and names none. image: the one that the pool wants; None if it
    is not there, or not known."""
    if server is not None and pool is not None and image is not None and _may_follow(server, pool, image):
        return ChosenImage(image.name, "Released")
    if server is not None and pool is not None and _has_arrived(server, pool):
        return ChosenImage(pool.spec.image_ref, "Assigned")
    return next_image(server, pool)


def _has_arrived(server: Server, pool: NodePool) -> bool:
    """Whether it is in use with the image that the pool wants, as the rollout is about to put on record."""
    status = server.status
    is_in_use = all(is_true(status.conditions, type_) for type_ in ("Ready", "Verified"))
    return is_in_use and status.image_ref == pool.spec.image_ref and status.node_pool_ref in (None, pool.name)


def _may_follow(server: Server, pool: NodePool, image: Image) -> bool:
    """Whether the server is one of the pool's that its rollout takes along, and may be next."""
    status, wanted = server.status, pool.spec.image_ref
    is_member = {server.spec.node_pool_ref, status.node_pool_ref, status.assigned_node_pool_ref} <= {pool.name, None}
    has_failed = status.upgrade_failure is not None and status.upgrade_failure.image_ref == wanted
    fits = image.name == wanted and image.spec.architecture == server.spec.architecture
    return is_member and fits and not has_failed and server.spec.upgrades != "Excluded" and lets_all_follow(pool)


def lets_all_follow(pool: NodePool) -> bool:
    """Whether the image that the pool wants has passed all stages there, and its rollout goes on or is complete:
    neither paused nor stopped, and within its windows."""
    said, released = find_condition(pool.status.conditions, PROGRESSING), pool.status.released
    if said is None or released is None or released.image_ref != pool.spec.image_ref or not is_observed(pool):
        return False
    return (said.status, said.reason) in (("True", "Rest"), ("False", "Complete"))


def is_observed(pool: NodePool) -> bool:
    """Whether its status is about its present spec."""
    said = find_condition(pool.status.conditions, PROGRESSING)
    return said is not None and (said.observed_generation or 0) >= (pool.metadata.generation or 0)


def released_image(pool: NodePool | None) -> ChosenImage:
    """The Image of servers that have nothing to lose; the wanted one of a pool that has released none yet."""
    if pool is None:
        return ChosenImage(None, "NoNodePool")
    released = pool.status.released
    if released is not None:
        return ChosenImage(released.image_ref, "Released")
    return ChosenImage(pool.spec.image_ref, "Wanted")


def images_of_pool(pool: Mapping[str, Any] | None) -> frozenset[str]:
    """The Images that a NodePool, as JSON, has servers boot: the wanted and the released one."""
    body = pool or {}
    released = (body.get("status") or {}).get("released") or {}
    return frozenset(name for name in ((body.get("spec") or {}).get("imageRef"), released.get("imageRef")) if name)


def boots_of_pool(pool: Mapping[str, Any] | None) -> tuple[Any, ...]:
    """What of a NodePool, as JSON, a boot of its servers depends on: not how many of them are updated."""
    body = pool or {}
    said = conditions_of(body, PROGRESSING)
    progress = [(c.get("status"), c.get("reason"), c.get("observedGeneration")) for c in said]
    return pool is None, body.get("spec"), images_of_pool(body), progress


def current_image(server: Server, pool: NodePool | None) -> ChosenImage:
    """The Image that a machine gets which boots now: that of the boot order until its boot is over, and then, or where
    nothing was ordered yet, the one that an order would name."""
    order = server.status.order
    if order is not None and order.image_ref is not None and not is_settled(server):
        return ChosenImage(order.image_ref, "BootOrder")
    return next_image(server, pool)


def joining_image_name(server: Server, pool: NodePool | None) -> str | None:
    """The name of the Image of the boot that joins: that of the boot order, also when this boot has settled, as a
    machine whose answer was lost asks again."""
    order = server.status.order
    return (order.image_ref if order is not None else None) or next_image(server, pool).name
