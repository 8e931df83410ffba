"""From an assessment to what the boot controller writes: all the fields that it owns, and the Events. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.meta import Condition, rfc3339_micro
from provisioner.api.servers.boot_stage import BOOT_STAGES
from provisioner.api.servers.boot_timeline import boot_timeline, format_timeline
from provisioner.api.servers.server import Lifecycle, Server, ServerStatus
from provisioner.boot.orders.assessment import Assessment, ConditionUpdate, OrderDecision
from provisioner.boot.orders.facts import OrderFacts
from provisioner.cluster.events import Happened
from provisioner.rules.boot_order import has_fetched, is_settled
from provisioner.rules.pool_of_server import current_pool_name

MAX_MESSAGE: Final = 4096

_TOLD_BY_OTHERS: Final = frozenset(BOOT_STAGES) - {"Ready"} | {"NoAddress"}
"""Reasons with Events of their own: a stage's from who saw it, a missing address's from the inventory, once it cannot
give one. Every server waits for its address for a moment after it was registered."""


def compose(facts: OrderFacts, assessment: Assessment, now: datetime) -> OrderDecision:
    """The decision that `assessment` amounts to."""
    status = facts.server.status
    order = assessment.order or status.order
    image_ref, image_digest = _running_image(facts)
    owned = ServerStatus(
        node_ref=facts.node.name if facts.node is not None and facts.node.boot_id is not None else None,
        boot_stage=assessment.stage,
        boot_id=facts.node.boot_id if facts.node is not None else None,
        image_ref=image_ref,
        image_digest=image_digest,
        node_pool_ref=_running_pool(facts),
        order=order,
        ready_time=_ready_time(facts, assessment, now),
        lifecycle=_lifecycle(facts, assessment),
        conditions=(
            _condition(facts.server, "Booted", assessment.booted, now),
            _condition(facts.server, "Ready", assessment.ready, now),
        ),
    )
    again = assessment.requeue_after_seconds
    if again is None and assessment.requeue_at is not None:
        again = max(0.5, (assessment.requeue_at - now).total_seconds())
    return OrderDecision(
        status=to_json(owned),
        events=_events(facts.server, assessment, owned),
        requeue_after_seconds=again,
        orders=assessment.order is not None,
        revokes=assessment.revoked is not None,
    )


def _running_image(facts: OrderFacts) -> tuple[str | None, str | None]:
    """Image and digest of what runs: what the order said, once its boot has joined; until then what ran before."""
    status = facts.server.status
    if status.order is None or not has_fetched(facts.server):
        return status.image_ref, status.image_digest
    ref = status.order.image_ref
    if facts.ordered_image is not None and facts.ordered_image.name == ref:
        return ref, facts.ordered_image.spec.digest
    return ref, status.image_digest if status.image_ref == ref else None


def _running_pool(facts: OrderFacts) -> str | None:
    """The NodePool of what runs: that of the order, once its boot has joined; until then the one before.

    An order that was given before orders named one was for the one that the server is in: that is put on record before
    anything is assigned anew.
    """
    order = facts.server.status.order
    if order is None or not has_fetched(facts.server):
        return facts.server.status.node_pool_ref
    return order.node_pool_ref or current_pool_name(facts.server)


def _lifecycle(facts: OrderFacts, assessment: Assessment) -> Lifecycle | None:
    """Booting, with the first order of a server of which nothing was said: the health stage, whose field it is, says
    what comes after, and takes it over with that. Until then each write has to repeat it: server-side apply takes away
    what is left out."""
    said = facts.server.status.lifecycle
    return "Booting" if said == "Booting" or (said is None and assessment.order is not None) else None


def _ready_time(facts: OrderFacts, assessment: Assessment, now: datetime) -> str | None:
    if assessment.order is not None:
        return None
    if is_settled(facts.server):
        return facts.server.status.ready_time
    return rfc3339_micro(now) if assessment.stage == "Ready" else None


def _condition(server: Server, type_: str, say: ConditionUpdate, now: datetime) -> Condition:
    return condition_of(server, type_, say.status, say.reason, say.message[:MAX_MESSAGE], now)


def _events(server: Server, assessment: Assessment, owned: ServerStatus) -> tuple[Happened, ...]:
    events = []
    order, ready = assessment.order, assessment.ready
    if order is not None:
        asked_for = order.reason in ("FirstBoot", "PowerState", "ImageChanged", "Requested")
        words = f"Boot ordered ({order.reason}, attempt {order.attempt}): {order.message}"
        events.append(Happened(type="Normal" if asked_for else "Warning", reason="BootOrdered", message=words))
    if assessment.revoked is not None:
        words = (
            f"Boot order {assessment.revoked.id} ({assessment.revoked.reason}) was not carried out and is revoked: "
            f"Node '{server.name}' is alive in the boot before it"
        )
        return (Happened(type="Normal", reason="OrderRevoked", message=words),)
    before = find_condition(server.status.conditions, "Ready")
    if assessment.is_told or ready.reason in _TOLD_BY_OTHERS or (before is not None and before.reason == ready.reason):
        return tuple(events)
    message = ready.message
    if ready.reason == "Ready":
        seen = replace(server.status, ready_time=owned.ready_time)
        message = f"{message}: {format_timeline(boot_timeline(seen))}"
    calm = ready.status == "True" or ready.reason in ("PendingAcceptance", "PoweredOff", "WaitsForDPU")
    return (*events, Happened(type="Normal" if calm else "Warning", reason=ready.reason, message=message))
