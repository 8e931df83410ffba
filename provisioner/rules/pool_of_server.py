"""Which NodePool a server is in, which one it boots for, and which one it shall be in. Pure.

`spec.nodePoolRef` is a wish, as a NodePool's imageRef is. A server in use stays in the NodePool that it was booted for
(`status.nodePoolRef`) until the rollout of the wanted one has moved it, as its jobs end. What the next boot is for
stands in `status.assignedNodePoolRef`, which the rollout alone writes, together with the assigned Image.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance
from provisioner.api.servers.server import Server
from provisioner.cluster.source import Object, spec_of
from provisioner.rules.boot_order import is_settled

PoolRule = Literal["BootOrder", "Running", "Assigned", "Spec", "NoNodePool"]
"""Whose word it is for which NodePool a server boots: its boot order's, what runs there, what the rollout has assigned,
or the wish in its spec."""


class ChosenPool(NamedTuple):
    """Name of a NodePool, and which rule names it; None: the server is in none."""

    name: str | None
    rule: PoolRule


def current_pool_name(server: Server) -> str | None:
    """The NodePool of what runs there, whose settings say how it is disturbed; without a system: of the next boot."""
    return _first(server.spec.node_pool_ref, server.status.node_pool_ref, server.status.assigned_node_pool_ref)


def current_pool_in(server: Mapping[str, Any] | None) -> str | None:
    """`current_pool_name`, of a Server's JSON."""
    status = (server or {}).get("status") or {}
    return _first(spec_of(server).get("nodePoolRef"), status.get("nodePoolRef"), status.get("assignedNodePoolRef"))


def next_pool_name(server: Server, maintenance: Maintenance | None = None) -> str | None:
    """The NodePool of a boot that is ordered now: that of the Maintenance while it is under way; else the assigned one;
    else that of the spec."""
    attempt = maintenance.status.reboot if maintenance is not None else None
    moves_to = None
    if maintenance is not None and attempt is not None and maintenance.status.phase not in FINAL_PHASES:
        moves_to = attempt.node_pool_ref
    return _first(server.spec.node_pool_ref, moves_to, server.status.assigned_node_pool_ref)


def ordered_pool_name(server: Server) -> str | None:
    """The NodePool of the current boot order, which what it boots joins, and is verified for; else the current one."""
    order = server.status.order
    ordered = order.node_pool_ref if order is not None else None
    return _first(server.spec.node_pool_ref, ordered, current_pool_name(server))


def ordered_pool_in(server: Mapping[str, Any] | None) -> str | None:
    """`ordered_pool_name`, of a Server's JSON."""
    order = ((server or {}).get("status") or {}).get("order") or {}
    return _first(spec_of(server).get("nodePoolRef"), order.get("nodePoolRef"), current_pool_in(server))


def booting_pool(server: Server) -> ChosenPool:
    """The NodePool of a machine that boots now: that of the boot order until its boot is over, and then the one that an
    order would name. Of an order that names none it is that of what runs."""
    spec, status, order = server.spec, server.status, server.status.order
    if spec.node_pool_ref is None:
        return ChosenPool(None, "NoNodePool")
    assigned = ChosenPool(status.assigned_node_pool_ref, "Assigned")
    by_order: tuple[ChosenPool, ...] = ()
    if order is not None and not is_settled(server):
        by_order = (ChosenPool(order.node_pool_ref, "BootOrder"), ChosenPool(status.node_pool_ref, "Running"))
    named = (each for each in (*by_order, assigned) if each.name is not None)
    return next(named, ChosenPool(spec.node_pool_ref, "Spec"))


def pools_in(server: Mapping[str, Any] | None) -> frozenset[str]:
    """All the NodePools that a Server, as JSON, depends on."""
    status = (server or {}).get("status") or {}
    names = (
        spec_of(server).get("nodePoolRef"),
        (status.get("order") or {}).get("nodePoolRef"),
        status.get("nodePoolRef"),
        status.get("assignedNodePoolRef"),
    )
    return frozenset(name for name in names if name)


def _first(wished: str | None, *names: str | None) -> str | None:
    """The first that there is; none of a server that is taken out of all pools."""
    if wished is None:
        return None
    return next((name for name in names if name is not None), wished)


def refers_to(server: Object) -> Iterable[Hashable]:
    """Kind and name of what a Server depends on: its pools, its rack, the Images that are ordered and assigned."""
    status, spec = server.get("status") or {}, spec_of(server)
    images = {(status.get("order") or {}).get("imageRef"), status.get("assignedImageRef")}
    pools = pools_in(server)
    return *(("NodePool", name) for name in pools), ("Rack", spec.get("rackRef")), *(("Image", name) for name in images)
