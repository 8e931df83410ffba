"""Whether a server needs another boot order. Pure. The rules are asked in turn; the first one that answers decides."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.servers.server import OrderReason, Server
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.requests import pending_request
from provisioner.boot.orders.stages import current_stage, describe_time_out, is_abandoned
from provisioner.rules.assigned_image import next_image
from provisioner.rules.boot_order import has_fetched, is_by_agent, is_settled
from provisioner.rules.pool_of_server import next_pool_name

_REARMING_REFUSALS: Final = ("AlreadyFetched", "OrderExpired")


@dataclass(frozen=True, kw_only=True)
class Need:
    """Another boot is needed. `urgent`: it does not wait for the pause between attempts."""

    reason: OrderReason
    message: str
    urgent: bool = False


def find_need(facts: OrderFacts, now: datetime) -> Need | None:
    """Why `facts.server`, which may boot, needs a new order now; None if what is under way goes on."""
    server = facts.server
    if server.status.order is None:
        return Need(reason="FirstBoot", message="it was never booted by the provisioner", urgent=True)
    return (
        _requested(facts)
        or _switched_on(server)
        or _power_lost(server)
        or _booted_unordered(facts, now)
        or _image_changed(facts)
        or _timed_out(facts, now)
    )


def _requested(facts: OrderFacts) -> Need | None:
    attempt = pending_request(facts.server, facts.maintenance)
    if attempt is None or facts.maintenance is None:
        return None
    words = f"requested by Maintenance '{facts.maintenance.name}' (method {attempt.method})"
    return Need(reason="Requested", message=words, urgent=True)


def _switched_on(server: Server) -> Need | None:
    ready = find_condition(server.status.conditions, "Ready")
    was_off = ready is not None and ready.reason in ("PoweredOff", "PowerState")
    is_off = server.spec.bmc is None or (server.status.power is not None and server.status.power.state == "Off")
    if was_off and is_off:
        return Need(reason="PowerState", message="it is meant to be on again", urgent=True)
    return None


def _power_lost(server: Server) -> Need | None:
    order, power = server.status.order, server.status.power
    if order is None or power is None or power.state != "Off" or power.observed_time is None:
        return None
    on_since = power.order_time if power.order_id == order.id else order.ordered_time if is_by_agent(order) else None
    seen = parse_time(power.observed_time)
    if on_since is None or seen <= parse_time(on_since):
        return None
    return Need(reason="PowerLost", message=f"its BMC says since {rfc3339(seen)} that it is off")


def _booted_unordered(facts: OrderFacts, now: datetime) -> Need | None:
    server = facts.server
    order, join = server.status.order, server.status.join
    if order is None or join is None or join.refused_time is None or join.refused_reason not in _REARMING_REFUSALS:
        return None
    refused = parse_time(join.refused_time)
    if _lived_at(facts, refused, now):
        # Every pod speaks from its server's address. One that asked while the Node lived must not have it reset when
        # its network fails later; a machine that did boot goes on asking.
        return None
    if join.refused_reason == "OrderExpired":
        by_nobody = server.spec.bmc is None or (is_by_agent(order) and not is_abandoned(facts))
        if by_nobody and refused > parse_time(order.ordered_time):
            return Need(
                reason="Unordered",
                message=f"it booted long after order {order.id} was given and asked to join at {rfc3339(refused)}",
            )
        return None  # what a BMC began is given up by the same time: rules/stage_timeouts.py
    fetched = parse_time(join.fetched_time) if join.fetched_time is not None else None
    if not has_fetched(server) or fetched is None or refused <= fetched:
        return None
    if not is_settled(server):
        # Anybody who takes the server's address can be refused in its name: a boot that is nearly done goes on, and is
        # given up only if its kubelet's time is over.
        return None
    return Need(
        reason="Unordered",
        message=f"it booted again without an order and asked to join at {rfc3339(refused)}",
    )


def _lived_at(facts: OrderFacts, then: datetime, now: datetime) -> bool:
    heartbeat = facts.node.heartbeat if facts.node is not None else None
    heard = heartbeat.last(now) if heartbeat is not None else None
    return heartbeat is not None and heard is not None and then <= heard + heartbeat.fresh


def _image_changed(facts: OrderFacts) -> Need | None:
    """Until the boot has joined, it is begun anew, however far somebody says that it is: only its minutes are lost."""
    order = facts.server.status.order
    if order is None or facts.next_pool is None or has_fetched(facts.server):
        return None
    if is_by_agent(order):
        return None  # the agent was told which image to start
    pool = next_pool_name(facts.server, facts.maintenance)
    if order.node_pool_ref not in (None, pool):
        words = f"it is to boot for NodePool '{pool}' instead of '{order.node_pool_ref}'"
        return Need(reason="ImageChanged", message=words, urgent=True)
    wanted = next_image(facts.server, facts.next_pool, facts.maintenance).name
    if wanted == order.image_ref:
        return None
    words = f"it is to boot Image '{wanted}' instead of '{order.image_ref}'"
    if facts.maintenance is not None and wanted != next_image(facts.server, facts.next_pool).name:
        words = f"Maintenance '{facts.maintenance.name}' wants Image '{wanted}' instead of '{order.image_ref}'"
    return Need(reason="ImageChanged", message=words, urgent=True)


def _timed_out(facts: OrderFacts, now: datetime) -> Need | None:
    stage = current_stage(facts.server, facts.pool)
    if stage is None or stage.deadline is None or now < stage.deadline:
        return None
    return Need(reason="TimedOut", message=describe_time_out(facts.server, stage))
