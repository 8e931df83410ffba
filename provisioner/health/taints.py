"""Which taints of a Node are taken off and put on. Pure; foreign ones stay as they are, in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api import Server
from provisioner.api.machinery.conditions import is_true
from provisioner.api.nodes.contract import HOLD_TAINT, PREPARED_ORDER_ANNOTATION, VERIFICATION_TAINT
from provisioner.health.checked_node import CheckedNode
from provisioner.health.compose import VERIFIED
from provisioner.health.situation import boot_to_judge, is_held


@dataclass(frozen=True, kw_only=True)
class TaintPlan:
    """taints: the whole list to write. The rest says what is different in it."""

    taints: tuple[Mapping[str, Any], ...]
    admitted: bool = False
    held: bool = False
    hold_ended: bool = False


def plan_taints(server: Server, node: CheckedNode) -> TaintPlan | None:
    """What to write, decided on a Server and a Node that were just read; None if the taints are as they should be."""
    admits = node.has_taint(VERIFICATION_TAINT) and may_admit(server, node)
    hold, has_hold = is_held(node), node.has_taint(HOLD_TAINT)
    off = {VERIFICATION_TAINT} if admits else set()
    off |= {HOLD_TAINT} if has_hold and not hold else set()
    on = ({"key": HOLD_TAINT, "effect": "NoSchedule"},) if hold and not has_hold else ()
    if not off and not on:
        return None
    kept = tuple(taint for taint in node.taints if taint.get("key") not in off)
    return TaintPlan(taints=(*kept, *on), admitted=admits, held=bool(on), hold_ended=HOLD_TAINT in off)


def may_admit(server: Server, node: CheckedNode) -> bool:
    """Whether the boot that runs is the one that was verified, the one that joined, and the last one ordered.

    A new order may be given, and the Node tainted for it, at any moment: the annotation tells for which order the
    taint was put on, and the caller writes only while boot, annotation and taints are as they were read.
    """
    status, boot = server.status, boot_to_judge(server, node)
    return (
        isinstance(boot, str)
        and is_true(status.conditions, VERIFIED)
        and status.verification is not None
        and status.verification.boot_id == boot
        and status.order is not None
        and node.annotations.get(PREPARED_ORDER_ANNOTATION) == status.order.id
        and status.node_uid in (None, node.uid)
    )
