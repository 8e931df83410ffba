"""Writes to Nodes: taints and answers, each only while what it was decided on is as it was just read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api import Server
from provisioner.api.machinery.codec import decode, decode_shared
from provisioner.api.machinery.conditions import is_true
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import HOLD_TAINT, PREPARED_ORDER_ANNOTATION, VERIFICATION_TAINT
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.json_patch import pointer
from provisioner.cluster.resources import NODES, of
from provisioner.health.compose import VERIFIED
from provisioner.health.requests import RequestAnswer
from provisioner.health.situation import boot_to_judge
from provisioner.rules.nodes import NodeView, read_node

# Which taints of a Node are taken off and put on. Pure; foreign ones stay as they are, in their order.


@dataclass(frozen=True, kw_only=True)
class TaintPlan:
    """taints: the whole list to write. The rest says what is different in it."""

    taints: tuple[Mapping[str, Any], ...]
    admitted: bool = False
    held: bool = False
    hold_ended: bool = False


def plan_taints(server: Server, node: NodeView) -> TaintPlan | None:
    """What to write, decided on a Server and a Node that were just read; None if the taints are as they should be."""
    admits = node.has_taint(VERIFICATION_TAINT) and may_admit(server, node)
    hold, has_hold = node.held, node.has_taint(HOLD_TAINT)
    off = {VERIFICATION_TAINT} if admits else set()
    off |= {HOLD_TAINT} if has_hold and not hold else set()
    on = ({"key": HOLD_TAINT, "effect": "NoSchedule"},) if hold and not has_hold else ()
    if not off and not on:
        return None
    kept = tuple(taint for taint in node.taints if taint.get("key") not in off)
    return TaintPlan(taints=(*kept, *on), admitted=admits, held=bool(on), hold_ended=HOLD_TAINT in off)


def may_admit(server: Server, node: NodeView) -> bool:
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
        and node.prepared_order == status.order.id
        and status.node_uid in (None, node.uid)
    )


log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-health"
_RELIES_ON: Final = (
    pointer("status", "nodeInfo", "bootID"),
    pointer("metadata", "annotations", PREPARED_ORDER_ANNOTATION),
)


class NodeWriter:
    """`now` gives the time of answers."""

    def __init__(self, cluster: Cluster, events: Events, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._events = events
        self._now = now

    def taint(
        self, name: str, body: Mapping[str, Any], just_written: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Bring the taints of Node `name`, which was seen as `body`, up to date; the Node, if it was written.

        It is written while the Node runs that boot, and has those taints and that order still; the Server is read as
        it is now, unless the API server has just said so in answer to a write (`just_written`).

        Raises: Conflict, Retryable.
        """
        server, node = just_written or self._cluster.find(of(Server), name), read_node(body)
        plan = plan_taints(decode(Server, server), node) if server is not None and node is not None else None
        if plan is None:
            return None
        written = self._cluster.patch_seen(
            NODES,
            body,
            {pointer("spec", "taints"): [dict(taint) for taint in plan.taints]},
            relies_on=_RELIES_ON,
            manager=MANAGER,
        )
        log.info("taints were written", node=name, admitted=plan.admitted, held=plan.held, hold_ended=plan.hold_ended)
        for is_news, reason, message in (
            (plan.admitted, "NodeAdmitted", f"Node {name} may be used: its verification taint was taken off"),
            (plan.held, "NodeHeld", f"Node {name} is kept out of use, as its condition HoldRequested asks"),
            (plan.hold_ended, "NodeHoldEnded", f"Node {name} is no longer held"),
        ):
            if is_news:
                self._events.record(body, "Normal", reason, message)
        return written

    def answer(self, name: str, answers: Sequence[RequestAnswer]) -> None:
        """Set the conditions that are still True to False, with what came of them. Raises: Conflict, Retryable."""
        body = self._cluster.find(NODES, name)
        node = read_node(body)
        if body is None or node is None:
            return
        asked = [each for each in answers if node.says(each.type)]
        if not asked:
            return
        told = {each.type: _condition(each, self._now()) for each in asked}
        metadata = {"resourceVersion": body["metadata"]["resourceVersion"]}
        types = [condition.type for condition in node.conditions]
        if all(types.count(type_) == 1 for type_ in told):
            patch = {"metadata": metadata, "status": {"conditions": list(told.values())}}
            self._cluster.strategic_patch(NODES, name, patch, subresource="status", manager=MANAGER)
        else:
            # A strategic patch would meet only one of several of a type: the whole list, with one of each of ours.
            others = [c for c in body["status"]["conditions"] if c.get("type") not in told]
            patch = {"metadata": metadata, "status": {"conditions": [*others, *told.values()]}}
            self._cluster.patch(NODES, name, patch, subresource="status", manager=MANAGER)
        for each in asked:
            log.info("request was answered", node=name, condition=each.type, reason=each.reason)


def _condition(answer: RequestAnswer, now: datetime) -> dict[str, Any]:
    return {
        "type": answer.type,
        "status": "False",
        "reason": answer.reason,
        "message": answer.message,
        "lastTransitionTime": rfc3339(now),
        "lastHeartbeatTime": rfc3339(now),
    }


def taints_differ(server: Mapping[str, Any], node: Mapping[str, Any] | None) -> bool:
    """Whether caches suggest that there is something to write; what is true now decides then."""
    seen = read_node(node)
    return seen is not None and plan_taints(decode_shared(Server, server), seen) is not None
