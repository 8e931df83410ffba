"""What a Maintenance that is gone has left on the Node of a server that no Maintenance holds. Pure."""

from __future__ import annotations

from typing import Final, get_args

from provisioner.api.maintenance import MaintenancePhase
from provisioner.maintenance.facts import NodeView
from provisioner.maintenance.requests.request import conditions_of
from provisioner.maintenance.status.node_status import NodeCondition, missing, none_planned
from provisioner.maintenance.steps import SetIntent, SetNodeConditions, SetTaint

_PHASES: Final = frozenset(get_args(MaintenancePhase))


def find_leftover(node: NodeView, *, keeps_taint: bool = False) -> SetIntent | SetTaint | SetNodeConditions | None:
    """The next thing to clear away: first what the agent might still obey.

    keeps_taint: the taint stays, as the only record of what is to be lifted in Slurm later. Conditions of these names
    are not ours alone: those are taken back whose reason is a phase of a Maintenance, as we alone write it.
    """
    if node.has_intent:
        return SetIntent(intent=None)
    if node.taint is not None and not keeps_taint:
        return SetTaint(value=None)
    unsaid: tuple[NodeCondition, ...] = missing(node.body, none_planned("NoMaintenance", "no Maintenance is planned"))
    conditions = conditions_of(node.body)
    there = {c.get("type") for c in conditions if c.get("status") == "True" and c.get("reason") in _PHASES}
    said = tuple(c for c in unsaid if c.type in there)
    return SetNodeConditions(conditions=said) if said else None
