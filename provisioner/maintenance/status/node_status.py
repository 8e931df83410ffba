"""What the executor says on the Node: the conditions of KEP-5683, answers to requests, refusals. Pure.

A Node's conditions are many people's. A strategic merge patch sets one by its type and leaves the others as they are.
It reaches only one of duplicates: where there are any, the whole list is written back under its resourceVersion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import ConditionStatus, rfc3339
from provisioner.api.nodes.contract import MAINTENANCE_CONDITIONS
from provisioner.api.nodes.maintenance import MaintenanceStatus
from provisioner.cluster.source import conditions_of

MAX_MESSAGE: Final = 1024


@dataclass(frozen=True, kw_only=True)
class NodeCondition:
    """A condition of a Node. `time`: of its transition; None: now, if the status changes."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    time: str | None = None


def mirrored(status: MaintenanceStatus) -> tuple[NodeCondition, ...]:
    """What the Node shall say of a Maintenance with that status."""
    found = (find_condition(status.conditions, type_) for type_ in MAINTENANCE_CONDITIONS)
    return tuple(
        NodeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message[:MAX_MESSAGE])
        for c in found
        if c is not None
    )


def none_planned(reason: str, message: str) -> tuple[NodeCondition, ...]:
    """What the Node shall say without a Maintenance."""
    return tuple(
        NodeCondition(type=type_, status="False", reason=reason, message=message[:MAX_MESSAGE])
        for type_ in MAINTENANCE_CONDITIONS
    )


def missing(node: Mapping[str, Any], wanted: Iterable[NodeCondition]) -> tuple[NodeCondition, ...]:
    """Those of `wanted` that the Node does not say, or not in all duplicates; what is False may be unsaid."""
    return tuple(c for c in wanted if not _is_said(node, c))


def turned(node: Mapping[str, Any], wanted: Iterable[NodeCondition]) -> tuple[NodeCondition, ...]:
    """`wanted`, if the Node does not say the status and message of each; the reason is that of the turn."""
    wanted = tuple(wanted)
    there = {c.get("type"): c.get("reason") for c in conditions_of(node)}
    reworded = [replace(c, reason=str(there.get(c.type) or c.reason)) for c in wanted]
    return missing(node, wanted) if missing(node, reworded) else ()


def conditions_patch(
    node: Mapping[str, Any], wanted: Iterable[NodeCondition], now: datetime
) -> tuple[dict[str, Any], bool]:
    """A patch of the Node's status, and whether it is a strategic one (else a JSON merge patch)."""
    by_type = {c.type: c for c in wanted}
    there = conditions_of(node)
    counts = {type_: sum(c.get("type") == type_ for c in there) for type_ in by_type}
    rendered = {t: _render(c, _last(there, t), now) for t, c in by_type.items()}
    if all(count <= 1 for count in counts.values()):
        return {"status": {"conditions": list(rendered.values())}}, True
    whole = [{**c, **rendered.get(str(c.get("type")), {})} for c in there]
    whole += [c for t, c in rendered.items() if counts[t] == 0]
    return {
        "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
        "status": {"conditions": whole},
    }, False


def _is_said(node: Mapping[str, Any], wanted: NodeCondition) -> bool:
    there = conditions_of(node, wanted.type)
    if not there:
        return wanted.status == "False"
    return all(
        (c.get("status"), c.get("reason"), c.get("message")) == (wanted.status, wanted.reason, wanted.message)
        for c in there
    )


def _last(conditions: Iterable[Mapping[str, Any]], type_: str) -> Mapping[str, Any] | None:
    return next((c for c in reversed(list(conditions)) if c.get("type") == type_), None)


def _render(condition: NodeCondition, before: Mapping[str, Any] | None, now: datetime) -> dict[str, Any]:
    time = condition.time or rfc3339(now)
    if before is not None and before.get("status") == condition.status and before.get("lastTransitionTime"):
        time = str(before["lastTransitionTime"])
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": time,
    }
