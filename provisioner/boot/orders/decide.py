"""What a server's boot needs: an order, patience, or a person. Pure: facts, a moment and a fresh id in, a decision out.

The rules are asked in turn; the first one that answers decides.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.servers.boot_stage import LATE, BootStage
from provisioner.boot.orders.assessment import Assessment, ConditionUpdate, OrderDecision
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.needs import Need, find_need
from provisioner.boot.orders.order import former_order, next_order, not_before
from provisioner.boot.orders.requests import pending_request
from provisioner.boot.orders.stages import current_stage, describe_delay, is_abandoned, waiting_words
from provisioner.boot.orders.status import compose
from provisioner.boot.script.choose import find_obstacle
from provisioner.rules.boot_order import has_fetched, is_ordered_boot, is_settled
from provisioner.rules.bootability import Obstacle, runs_as_other_node
from provisioner.rules.cause import find_deeper_cause
from provisioner.rules.dpus import find_awaited_dpu

ALIVE_AGAIN_SECONDS: Final = 5.0
"""Leases are not watched for each renewal: where one stands in the way, it is looked at so often."""


def decide(facts: OrderFacts, now: datetime, new_id: str) -> OrderDecision:
    """Judge a server. A new order takes the id `new_id`; it is given only where no Node lives, or where a Maintenance
    that has drained the Node asks for it."""
    revoked, former = facts.server.status.order, former_order(facts, now)
    if former is not None:
        # Judged as if it had never been given. readyTime: its boot is over, so that no stage of it times out again.
        status = replace(facts.server.status, order=former, ready_time=rfc3339_micro(now))
        facts = replace(facts, server=replace(facts.server, status=status))
    assessment = (
        _revoked(facts)
        or _requested(facts, now, new_id)
        or _ready(facts)
        or _adopted(facts)
        or _needy(facts, now, new_id)
        or _obstructed(facts)
        or _settled(facts)
        or _under_way(facts, now)
    )
    if former is not None:
        assessment = replace(assessment, revoked=revoked)
    return compose(facts, _explained(facts, assessment), now)


def _explained(facts: OrderFacts, assessment: Assessment) -> Assessment:
    """With the cause in the condition Ready, where another condition names it; Booted keeps how far the boot is."""
    ready = assessment.ready
    cause = find_deeper_cause(facts.server, ready.reason, assessment.stage) if ready.status != "True" else None
    if cause is None or assessment.order is not None:
        return assessment
    return replace(assessment, ready=replace(ready, reason=cause.reason, message=cause.message), is_told=True)


def _revoked(facts: OrderFacts) -> Assessment | None:
    """Not wanted as a Node: not accepted, or meant to be off."""
    obstacle = find_obstacle(facts.server, facts.pool, facts.ordered_image, facts.rack)
    if obstacle is None or not obstacle.unwanted:
        return None
    return Assessment(booted=_no(obstacle), ready=_no(obstacle), stage=None)


def _requested(facts: OrderFacts, now: datetime, new_id: str) -> Assessment | None:
    """A Maintenance has drained the Node and asks for its boot. Where it cannot be given, nothing else changes."""
    if pending_request(facts.server, facts.maintenance) is None:
        return None
    assessment = _needy(facts, now, new_id)
    if assessment is None or assessment.order is not None:
        return assessment
    lives = _ready(facts)
    if lives is None:
        return assessment
    return replace(lives, ready=replace(lives.ready, message=f"{lives.ready.message}; {assessment.ready.message}"))


def _ready(facts: OrderFacts) -> Assessment | None:
    """The Node is Ready, and it is the boot that was ordered."""
    node = facts.node
    if node is None or not node.ready or facts.has_lost_its_power or not is_ordered_boot(facts.server, node.boot_id):
        return None
    booted = ConditionUpdate(status="True", reason="Joined", message=f"the ordered boot runs as Node '{node.name}'")
    ready = ConditionUpdate(status="True", reason="Ready", message=f"Node '{node.name}' is Ready")
    return Assessment(booted=booted, ready=ready, stage="Ready")


def _adopted(facts: OrderFacts) -> Assessment | None:
    """A kubelet was there before any order: it is left alone, also when it is not well."""
    node = facts.node
    if facts.server.status.order is not None or node is None or node.boot_id is None:
        return None
    remedy = f"to have it booted by the provisioner, drain it, then: kubectl delete node {node.name}"
    booted = ConditionUpdate(
        status="Unknown", reason="Adopted", message=f"Node '{node.name}' ran before the provisioner knew it; {remedy}"
    )
    if node.ready:
        ready = ConditionUpdate(
            status="True", reason="Adopted", message=f"Node '{node.name}' is Ready; it was left running"
        )
    else:
        ready = ConditionUpdate(
            status="False",
            reason="NodeNotReady",
            message=f"Node '{node.name}', not booted by the provisioner, is not Ready: {node.ready_message}; {remedy}",
        )
    return Assessment(booted=booted, ready=ready, stage=None)


def _needy(facts: OrderFacts, now: datetime, new_id: str) -> Assessment | None:
    """Another order is needed: give it, or say what keeps it from being given."""
    server = facts.server
    need = find_need(facts, now)
    if need is None:
        return None
    order = next_order(facts, need, new_id, now)
    ordered = replace(facts, server=replace(server, status=replace(server.status, order=order, ready_time=None)))
    obstacle = find_obstacle(ordered.server, facts.next_pool, facts.next_image, facts.rack)
    if need.reason == "TimedOut":
        # It waits in its firmware, and another reset would take the card's power away, too.
        obstacle = obstacle or find_awaited_dpu(server.name, facts.awaited)
    looks_again = None
    if need.reason == "FirstBoot" and facts.other_node is not None and obstacle is None:
        obstacle, looks_again = runs_as_other_node(server, facts.other_node), ALIVE_AGAIN_SECONDS
    if obstacle is not None:
        say = replace(_no(obstacle), message=f"{need.message}; it cannot boot: {obstacle.words}")
        return Assessment(booted=say, ready=say, stage=_stage_of(facts), requeue_after_seconds=looks_again)
    if facts.node_is_alive(now) and need.reason != "Requested":
        return _held_back(facts, need)
    moment = not_before(server, need, now)
    if now < moment:
        say = ConditionUpdate(
            status="False",
            reason=_reason_of(need),
            message=f"{need.message}; it is booted again at {rfc3339(moment)}",
        )
        return Assessment(booted=say, ready=say, stage=_stage_of(facts), requeue_at=moment)
    stage = current_stage(ordered.server, facts.next_pool)
    if stage is None:
        raise AssertionError("an order was just given")
    say = ConditionUpdate(status="False", reason="Ordered", message=waiting_words(ordered, stage))
    return Assessment(booted=say, ready=say, stage="Ordered", order=order)


def _held_back(facts: OrderFacts, need: Need) -> Assessment:
    """A Node that lives is never reset, whatever else points to it."""
    name = facts.server.name
    # A server that is switched on again is told from one that lost its power by the reason that it keeps meanwhile.
    keeps = has_fetched(facts.server) and need.reason not in ("PowerState", "PowerLost")
    reason = "NodeNotReady" if keeps else _reason_of(need)
    message = (
        f"{need.message}; it is not booted again, for Node '{name}' is alive; "
        f"see what keeps it from being Ready: kubectl describe node {name}"
    )
    fetched = has_fetched(facts.server)
    booted = ConditionUpdate(status="True", reason="Joined", message=f"the ordered boot runs as Node '{name}'")
    ready = ConditionUpdate(status="False", reason=reason, message=message)
    return Assessment(
        booted=booted if fetched else ready,
        ready=ready,
        stage=_stage_of(facts),
        requeue_after_seconds=ALIVE_AGAIN_SECONDS,
    )


def _obstructed(facts: OrderFacts) -> Assessment | None:
    """The order stands, and something that its boot needs is gone. Once it has joined, nothing of that matters."""
    if has_fetched(facts.server):
        return None
    obstacle = find_obstacle(facts.server, facts.pool, facts.ordered_image, facts.rack)
    stage = current_stage(facts.server, facts.pool)
    if stage is not None and stage.stage != "Ordered":  # until it is on, nothing in it is
        obstacle = obstacle or find_awaited_dpu(facts.server.name, facts.awaited)
    if obstacle is None:
        return None
    named, deadline = (stage.stage, stage.deadline) if stage is not None else (None, None)
    return Assessment(booted=_no(obstacle), ready=_no(obstacle), stage=named, requeue_at=deadline)


def _settled(facts: OrderFacts) -> Assessment | None:
    """It was Ready in this order and is not now. Nobody resets it for that alone: it may run a job."""
    server, node = facts.server, facts.node
    if not is_settled(server):
        return None
    booted = ConditionUpdate(status="True", reason="Joined", message=f"the ordered boot ran as Node '{server.name}'")
    if node is None or node.boot_id is None:
        message = (
            f"Node '{server.name}' is gone, though its server was not told to leave; "
            f"restart its kubelet, or have it booted anew: kubectl provision reboot {server.name}"
        )
    else:
        message = (
            f"Node '{node.name}' is not Ready: {node.ready_message or 'its kubelet reports nothing'}; "
            f"see kubectl describe node {node.name}; a power-cycle boots it anew"
        )
    return Assessment(
        booted=booted, ready=ConditionUpdate(status="False", reason="NodeNotReady", message=message), stage="Ready"
    )


def _under_way(facts: OrderFacts, now: datetime) -> Assessment:
    """The boot goes on: say what is waited for, since when, and until when."""
    server = facts.server
    stage = current_stage(server, facts.pool)
    if stage is None:
        raise AssertionError("a server without an order is needy, adopted or revoked")
    late = stage.late is not None and now >= stage.late
    abandoned = is_abandoned(facts)
    words = describe_delay(server, stage) if late and not abandoned else waiting_words(facts, stage)
    if late and stage.stage == "Ordered":
        words += f"; see its condition PoweredOn: kubectl describe server {server.name}"
    if abandoned:
        words += f"; to have it booted: kubectl provision power-cycle {server.name}"
    elif stage.deadline is not None and late:
        words += f"; unless it goes on, another boot is ordered at {rfc3339(stage.deadline)}"
    ready = ConditionUpdate(status="False", reason=LATE if late else stage.stage, message=words)
    booted = ready
    if has_fetched(server):
        booted = ConditionUpdate(
            status="True", reason="Joined", message="the ordered boot was handed its join configuration"
        )
    return Assessment(
        booted=booted,
        ready=ready,
        stage=stage.stage,
        requeue_at=min((m for m in (None if late else stage.late, stage.deadline) if m is not None), default=None),
    )


def _stage_of(facts: OrderFacts) -> BootStage | None:
    stage = current_stage(facts.server, facts.pool)
    return stage.stage if stage is not None else None


def _reason_of(need: Need) -> str:
    return LATE if need.reason == "TimedOut" else need.reason


def _no(obstacle: Obstacle) -> ConditionUpdate:
    return ConditionUpdate(status="False", reason=obstacle.reason, message=obstacle.words)
