"""Boot orders: the next one, when it may be given, and the one to go back to. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.backoff import backoff_seconds, unspread
from provisioner.api.machinery.meta import parse_time, rfc3339_micro
from provisioner.api.servers.server import BootOrder, Server
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.needs import Need
from provisioner.boot.orders.requests import belongs_to, is_awaited, pending_request
from provisioner.rules.assigned_image import next_image
from provisioner.rules.boot_order import is_settled
from provisioner.rules.pool_of_server import current_pool_name, next_pool_name

FIRST_PAUSE_SECONDS: Final = 30.0
LONGEST_PAUSE_SECONDS: Final = 1800.0
PROVEN_SECONDS: Final = 600.0
"""A server that was Ready for so long starts counting attempts anew; one that dies sooner is slowed down."""


def next_order(facts: OrderFacts, need: Need, new_id: str, now: datetime) -> BootOrder:
    """The order that answers `need`. `rules.assigned_image.next_image` chooses its Image."""
    server, maintenance = facts.server, facts.maintenance
    before = server.status.order
    attempt = pending_request(server, maintenance) if need.reason == "Requested" else None
    order = BootOrder(
        id=new_id,
        reason=need.reason,
        ordered_time=rfc3339_micro(now),
        attempt=_attempts(server, now) + 1,
        image_ref=next_image(server, facts.next_pool, maintenance).name or (before.image_ref if before else None),
        node_pool_ref=next_pool_name(server, maintenance),
        boot_id_before=_boot_id_before(facts, need),
        message=need.message[:1024],
        method=attempt.method if attempt is not None else None,
    )
    if attempt is not None and maintenance is not None:
        return replace(order, maintenance_ref=maintenance.name, attempt_id=attempt.id)
    if before is not None and (belongs_to(before, maintenance) or not is_settled(server)):
        return replace(order, maintenance_ref=before.maintenance_ref, attempt_id=before.attempt_id)
    return order


def former_order(facts: OrderFacts, now: datetime) -> BootOrder | None:
    """The order to go back to if the current one was not carried out and the Node lives on in the boot before it.

    What the former order said is not kept; this is as much of it as the boot left behind: its id in status.join, its
    Image in status.imageRef, the time when the BMC accepted it. An order that a Maintenance asked for is the executor's
    to wait for, as long as that Maintenance has not ended and not gone back to waiting.
    """
    status, node = facts.server.status, facts.node
    order, power, join = status.order, status.power, status.join
    if order is None or join is None or join.order_id is None or join.order_id == order.id or join.fetched_time is None:
        return None
    if is_settled(facts.server):
        return None  # it was carried out, whatever the record of the join says
    if order.reason == "Requested" and is_awaited(order, facts.maintenance):
        return None
    if pending_request(facts.server, facts.maintenance) is not None:
        return None  # the next order takes its place
    if power is not None and power.order_id == order.id:
        return None
    if node is None or node.boot_id is None or join.boot_id is None or node.boot_id != join.boot_id.lower():
        return None
    if not node.was_heard(now):
        return None
    accepted = power.order_time if power is not None and power.order_id == join.order_id else None
    return BootOrder(
        id=join.order_id,
        reason=order.reason,
        ordered_time=min(accepted or join.fetched_time, join.fetched_time, key=parse_time),
        attempt=max(1, order.attempt - 1),
        image_ref=status.image_ref or order.image_ref,
        node_pool_ref=current_pool_name(facts.server),
        message=f"boot order {order.id} ({order.reason}) was revoked: the boot before it lived on",
    )


def not_before(server: Server, need: Need, now: datetime) -> datetime:
    """When the next order may be given: at once, or after a pause that doubles with each attempt (up to 30 minutes).

    The pause is spread by a fifth, fixed for each order, so that a rack that failed together does not try together.
    """
    order = server.status.order
    attempts = _attempts(server, now)
    if order is None or need.urgent or attempts == 0:
        return now
    spread = 1 + 0.2 * hashlib.sha256(order.id.encode()).digest()[0] / 255
    pause = spread * backoff_seconds(attempts, first=FIRST_PAUSE_SECONDS, cap=LONGEST_PAUSE_SECONDS, jitter=unspread)
    return parse_time(order.ordered_time) + timedelta(seconds=pause)


def _attempts(server: Server, now: datetime) -> int:
    order, ready = server.status.order, server.status.ready_time
    if order is None:
        return 0
    if is_settled(server) and ready is not None and now - parse_time(ready) >= timedelta(seconds=PROVEN_SECONDS):
        return 0
    return order.attempt


def _boot_id_before(facts: OrderFacts, need: Need) -> str | None:
    """The kernel that runs before the order, so that its late requests are told from the ordered boot's: as its kubelet
    says, or as it joined. What was reported on the way does not count; strangers report, too.

    Without a BMC nothing resets the machine: the boot that waits there now is the one that the order is for.
    """
    node = facts.node.boot_id if facts.node is not None else None
    if node is not None or (facts.server.spec.bmc is None and need.reason != "Requested"):
        return node
    return facts.server.status.join.boot_id if facts.server.status.join is not None else None
