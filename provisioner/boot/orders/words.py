"""What is said of a boot that is under way. Pure."""

from __future__ import annotations

from provisioner.api.boot_stage import WAITS_FOR
from provisioner.api.boot_timeline import PHASE_NAMES
from provisioner.api.meta import rfc3339
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.requests import belongs_to, describe_request
from provisioner.boot.orders.stages import Stage, has_fetched, is_by_agent


def waiting_words(facts: OrderFacts, stage: Stage) -> str:
    """What a boot under way waits for, since when and until when, and what is known that may explain it."""
    server, node = facts.server, facts.node
    waits_for = _ordered_waits_for(facts) if stage.stage == "Ordered" else WAITS_FOR[stage.stage]
    words = f"{PHASE_NAMES[stage.stage]} since {rfc3339(stage.began)}: waits for {waits_for}"
    until = min((moment for moment in (stage.late, stage.deadline) if moment is not None), default=None)
    if until is not None:
        words += f", until {rfc3339(until)} at most"
    order = server.status.order
    if order is not None and order.reason == "Requested" and order.maintenance_ref is not None:
        words += f"; {describe_request(order)}"
    if stage.stage == "Kubelet" and node is not None and node.ready and node.boot_id is not None:
        words += f"; Node '{node.name}' is Ready, but reports another boot ({node.boot_id})"
    elif stage.stage == "Kubelet" and node is not None and node.ready_message:
        words += f"; Node '{node.name}' says: {node.ready_message}"
    progress = server.status.progress
    if progress is not None and progress.message and progress.stage == stage.stage:
        words += f"; the machine says: {progress.message}"
    refused = server.status.join.refused_reason if server.status.join is not None else None
    if stage.stage == "Token" and refused is not None:
        words += f"; its last request was refused ({refused}), see its condition Joined"
    return words


def is_abandoned(facts: OrderFacts) -> bool:
    """Whether the boot was left to the agent, and nobody waits for it: no BMC is told, whatever is reported."""
    server, order = facts.server, facts.server.status.order
    if order is None or not is_by_agent(order) or has_fetched(server):
        return False
    return not belongs_to(order, facts.maintenance)


def _ordered_waits_for(facts: OrderFacts) -> str:
    """Who is to carry the order out."""
    server, order = facts.server, facts.server.status.order
    if order is not None and is_by_agent(order):
        if is_abandoned(facts):
            return "nobody any more: its Maintenance is over"
        if order.method == "Kexec":
            return "the agent on it to start the new image by kexec"
        return "the agent on it to reboot it"
    if server.spec.bmc is None:
        return "somebody to press its power button, as it has no BMC (spec.bmc)"
    return WAITS_FOR["Ordered"]
