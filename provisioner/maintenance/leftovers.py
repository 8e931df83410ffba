"""What a Maintenance that is gone has left on the Node of a server that no Maintenance holds. Pure."""

from __future__ import annotations

from provisioner.maintenance.facts import NodeView
from provisioner.maintenance.node_status import NodeCondition, missing, none_planned
from provisioner.maintenance.steps import SetIntent, SetNodeConditions, SetTaint


def find_leftover(node: NodeView) -> SetIntent | SetTaint | SetNodeConditions | None:
    """The next thing to clear away: first what the agent might still obey."""
    if node.has_intent:
        return SetIntent(intent=None)
    if node.taint is not None:
        return SetTaint(value=None)
    unsaid: tuple[NodeCondition, ...] = missing(node.body, none_planned("NoMaintenance", "no Maintenance is planned"))
    there = {c.get("type") for c in node.body.get("status", {}).get("conditions") or () if c.get("status") == "True"}
    said = tuple(c for c in unsaid if c.type in there)
    return SetNodeConditions(conditions=said) if said else None
