"""The effects of `node_object`: the Node of every server whose boot is ordered, before its kubelet registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import structlog

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.errors import Conflict, Refused
from provisioner.api.machinery.meta import Condition
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.json_patch import pointer
from provisioner.cluster.own_writes import FreshReader, OwnWrites
from provisioner.cluster.resources import NODES, ResourceType, regarding
from provisioner.cluster.source import Source
from provisioner.join.nodes.node_object import MANAGER, CreateNode, NodeNameTaken, PrepareNode, RecordNode, plan_node
from provisioner.rules.pool_of_server import ordered_pool_name

log = structlog.get_logger()

CONDITION_MANAGER: Final = "provisioner-join-controller"
WAIT_FOR_POOL_SECONDS: Final = 15.0


@dataclass(frozen=True, kw_only=True)
class NodePreparer:
    """Reconciles one Server at a time, by name.

    What is decided on a cache is written while what it changes is as it was there, and a Node is created only where
    there is none.
    """

    cluster: Cluster
    recorder: Events
    now: Callable[[], datetime]
    sources: Mapping[ResourceType, Source] = field(default_factory=dict)
    """Caches of what may be of a moment ago; without one, the API server is asked."""

    @cached_property
    def reader(self) -> FreshReader:
        return FreshReader(self.cluster, self.sources, OwnWrites(self.now))

    def reconcile(self, name: str) -> float | None:
        """Create or patch the Node for the current order. Raises: Conflict, Retryable, Refused (a label is invalid)."""
        server = self.reader.read(Server, name)
        if server is None:
            return None
        if server.spec.acceptance != "Accepted" or server.spec.node_pool_ref is None or server.status.order is None:
            return None
        named = ordered_pool_name(server)
        pool = self.reader.read(NodePool, named) if named is not None else None
        rack = self.reader.read(Rack, server.spec.rack_ref) if server.spec.rack_ref else None
        if pool is None or (rack is None and server.spec.rack_ref):
            missing = f"NodePool '{named}'" if pool is None else f"Rack '{server.spec.rack_ref}'"
            self._say(server, "False", "Incomplete", f"{missing} does not exist; create it, or correct the Server")
            return WAIT_FOR_POOL_SECONDS
        try:
            existing, plan = self._carry_out(server, pool, rack)
        except Refused as error:
            self._say(server, "False", "NodeRefused", str(error))
            raise
        if isinstance(plan, NodeNameTaken):
            self._say(server, "False", "NodeNameTaken", plan.message)
            return WAIT_FOR_POOL_SECONDS
        if existing is not None and plan is not None:
            uid = existing["metadata"].get("uid")
            server = replace(server, status=replace(server.status, node_uid=uid, node_taints=plan.node_taints))
            order_id = server.status.order.id if server.status.order is not None else None
            message = f"labels and taints of NodePool {pool.name} are on the Node for boot order {order_id}"
            if isinstance(plan, RecordNode):
                message = f"the Node was prepared for boot order {order_id}"
            log.info("node prepared", server=name, order=order_id)
            self._say(server, "True", "Prepared", message, changed=True, guarded=isinstance(plan, RecordNode))
        return None

    def _carry_out(
        self, server: Server, pool: NodePool, rack: Rack | None
    ) -> tuple[Mapping[str, Any] | None, PrepareNode | CreateNode | RecordNode | NodeNameTaken | None]:
        """The Node as it is afterwards, and what was done about it."""
        existing = self.reader.get(NODES, server.name)
        plan = plan_node(server, pool, rack, existing)
        if isinstance(plan, CreateNode):
            try:
                return self.cluster.create(NODES, plan.body, manager=MANAGER), plan
            except Conflict:
                existing = self.cluster.get(NODES, server.name)  # it came a moment ago
                plan = plan_node(server, pool, rack, existing)
        if isinstance(plan, PrepareNode) and existing is not None:
            self._record(server, existing, plan)
            self._prepare(existing, plan)
        return existing, plan

    def _record(self, server: Server, node: Mapping[str, Any], plan: PrepareNode) -> None:
        """Put on record what is about to be done, before it is: a taint that we set is never taken for another's."""
        uid = node["metadata"].get("uid")
        before = server.status.node_taints if uid == server.status.node_uid else ()
        taints = tuple(sorted({*before, *plan.node_taints}))
        if (uid, taints) != (server.status.node_uid, server.status.node_taints):
            recorded = replace(server, status=replace(server.status, node_uid=uid, node_taints=taints))
            version = server.metadata.resource_version
            self._apply(recorded, find_condition(server.status.conditions, "NodePrepared"), version)

    def _prepare(self, node: Mapping[str, Any], plan: PrepareNode) -> None:
        """Labels, taints and the mark of the order at once, only if nobody wrote these in between."""
        changes: dict[str, Any] = {pointer("spec", "taints"): plan.taints or None}
        changes |= {pointer("metadata", "labels", key): value for key, value in plan.labels.items()}
        changes |= {pointer("metadata", "annotations", key): value for key, value in plan.annotations.items()}
        self.cluster.patch_seen(NODES, node, changes, manager=MANAGER)

    def _apply(self, server: Server, condition: Condition | None, resource_version: str | None) -> None:
        """Everything that this manager has of the status: server-side apply takes away what is left out."""
        status: dict[str, Any] = {"conditions": [to_json(condition)] if condition is not None else []}
        if server.status.node_uid is not None:
            status["nodeUID"] = server.status.node_uid
            status["nodeTaints"] = list(server.status.node_taints)
        self.cluster.apply_status(
            Server, server.name, status, manager=CONDITION_MANAGER, resource_version=resource_version
        )

    def _say(
        self, server: Server, status: str, reason: str, message: str, *, changed: bool = False, guarded: bool = True
    ) -> None:
        """Condition NodePrepared, and an Event when it changed. `changed`: the record of the Node did, in any case.

        guarded: it must not be older than what is there. What was just prepared is written whole.
        """
        before = find_condition(server.status.conditions, "NodePrepared")
        same = before is not None and (before.status, before.reason, before.message) == (status, reason, message)
        if same and not changed:
            return
        condition = condition_of(server, "NodePrepared", status == "True", reason, message, self.now())
        version = server.metadata.resource_version if guarded else None
        self._apply(server, condition, version)
        if same:
            return
        if status != "True":
            self.recorder.record(regarding(server), "Warning", reason, message)
