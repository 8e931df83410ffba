"""The effects of `node_object`: the Node of every server whose boot is ordered, before its kubelet registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api.codec import to_json
from provisioner.api.conditions import find_condition, settle_condition
from provisioner.api.errors import NotFound, Refused
from provisioner.api.meta import Condition, rfc3339
from provisioner.api.node_contract import PREPARED_ORDER_ANNOTATION
from provisioner.api.node_pool import NodePool
from provisioner.api.rack import Rack
from provisioner.api.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.resources import NODES
from provisioner.join.node_object import CreateNode, NodeNameTaken, PrepareNode, plan_node
from provisioner.join.recording import regarding_server

log = structlog.get_logger()

LABELS_MANAGER: Final = "provisioner-join"
CONDITION_MANAGER: Final = "provisioner-join-controller"
WAIT_FOR_POOL_SECONDS: Final = 15.0


@dataclass(frozen=True, kw_only=True)
class NodePreparer:
    """Reconciles one Server after the other."""

    cluster: Cluster
    recorder: Events
    now: Callable[[], datetime]

    def reconcile(self, name: str) -> float | None:
        """Create or patch the Node for the current order. Raises: Conflict, Retryable, Refused (a label is invalid)."""
        try:
            server = self.cluster.read(Server, name)
        except NotFound:
            return None
        if server.spec.acceptance != "Accepted" or server.spec.node_pool_ref is None or server.status.order is None:
            return None
        try:
            pool = self.cluster.read(NodePool, server.spec.node_pool_ref)
            rack = self.cluster.read(Rack, server.spec.rack_ref) if server.spec.rack_ref else None
        except NotFound as error:
            self._say(server, "False", "Incomplete", str(error))
            return WAIT_FOR_POOL_SECONDS
        try:
            existing = self._node(name)
            plan = plan_node(server, pool, rack, existing)
            if isinstance(plan, CreateNode):
                existing = self.cluster.create(NODES, plan.body)
                # Again, with what admission added: a new Node comes back with a taint that must stay.
                plan = plan_node(server, pool, rack, existing)
            if isinstance(plan, PrepareNode) and existing is not None:
                server = self._record(server, existing, plan)
                self._prepare(existing, plan)
        except Refused as error:
            self._say(server, "False", "NodeRefused", str(error))
            raise
        if isinstance(plan, NodeNameTaken):
            self._say(server, "False", "NodeNameTaken", plan.message)
            return WAIT_FOR_POOL_SECONDS
        if isinstance(plan, PrepareNode):
            server = replace(server, status=replace(server.status, node_taints=plan.node_taints))
            order_id = plan.annotations[PREPARED_ORDER_ANNOTATION]
            message = f"labels and taints of NodePool {pool.name} are on the Node for boot order {order_id}"
            log.info("node prepared", server=name, order=order_id)
            self._say(server, "True", "Prepared", message, changed=True)
        return None

    def _record(self, server: Server, node: Mapping[str, Any], plan: PrepareNode) -> Server:
        """Put on record what is about to be done, before it is: a taint that we set is never taken for another's."""
        uid = node["metadata"].get("uid")
        before = server.status.node_taints if uid == server.status.node_uid else ()
        taints = tuple(sorted({*before, *plan.node_taints}))
        if (uid, taints) == (server.status.node_uid, server.status.node_taints):
            return server
        recorded = replace(server, status=replace(server.status, node_uid=uid, node_taints=taints))
        self._apply(recorded, find_condition(server.status.conditions, "NodePrepared"))
        return recorded

    def _prepare(self, node: Mapping[str, Any], plan: PrepareNode) -> None:
        """Labels, then taints with the mark of the order; each only if nobody wrote the Node in between."""
        name = node["metadata"]["name"]
        labelled = self.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "resourceVersion": node["metadata"]["resourceVersion"],
                    "labels": dict(plan.labels),
                },
            },
            manager=LABELS_MANAGER,
        )
        # Taints are one atomic list for server-side apply: to apply ours would take everybody's.
        self.cluster.patch(
            NODES,
            name,
            {
                "metadata": {
                    "resourceVersion": labelled["metadata"]["resourceVersion"],
                    "annotations": dict(plan.annotations),
                },
                "spec": {"taints": plan.taints},
            },
            manager=LABELS_MANAGER,
        )

    def _node(self, name: str) -> dict[str, Any] | None:
        try:
            return self.cluster.get(NODES, name)
        except NotFound:
            return None

    def _apply(self, server: Server, condition: Condition | None) -> None:
        """Everything that this manager has of the status: server-side apply takes away what is left out."""
        status: dict[str, Any] = {"conditions": [to_json(condition)] if condition is not None else []}
        if server.status.node_uid is not None:
            status["nodeUID"] = server.status.node_uid
            status["nodeTaints"] = list(server.status.node_taints)
        self.cluster.apply_status(Server, server.name, status, manager=CONDITION_MANAGER)

    def _say(self, server: Server, status: str, reason: str, message: str, *, changed: bool = False) -> None:
        """Condition NodePrepared, and an Event when it changed. `changed`: the record of the Node did, in any case."""
        before = find_condition(server.status.conditions, "NodePrepared")
        same = before is not None and (before.status, before.reason, before.message) == (status, reason, message)
        if same and not changed:
            return
        condition = Condition(
            type="NodePrepared",
            status="True" if status == "True" else "False",
            reason=reason,
            message=message,
            last_transition_time=rfc3339(self.now()),
            observed_generation=server.metadata.generation,
        )
        self._apply(server, settle_condition(server.status.conditions, condition))
        if same:
            return
        event = "NodePrepared" if status == "True" else reason
        self.recorder.record(regarding_server(server), "Normal" if status == "True" else "Warning", event, message)
