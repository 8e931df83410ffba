"""Keeps the fault records of Servers (`status.faults`). It reads caches alone, and writes nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api import Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.reconciler import StatusReconciler
from provisioner.cluster.source import Object, Source, when_changed
from provisioner.health.faults.decision import FaultDecision, decide
from provisioner.rules.nodes import read_node
from provisioner.rules.ownership import owned_by

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-faults"
SETTLE_SECONDS: Final = 60.0
"""How often counts, and whether a fault is reported, are written for one server; a new or worse fault at once."""
URGENT_WRITES: Final = 8
"""For one server within URGENT_SECONDS: a node that makes faults up has them written no more often than counts."""
URGENT_SECONDS: Final = 60.0


class FaultController(StatusReconciler[FaultDecision]):
    """Reconciles one Server at a time, by name."""

    owned = owned_by(MANAGER, Server)

    def __init__(
        self,
        cluster: Cluster,
        servers: Source,
        nodes: Source,
        events: Events,
        *,
        now: Callable[[], datetime],
        rng: random.Random | None = None,
        settle_seconds: float = SETTLE_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            cluster,
            servers,
            events,
            caches=(servers, nodes),
            now=now,
            rng=rng,
            settle_seconds=settle_seconds,
            monotonic=monotonic,
        )
        self._nodes = nodes
        self._monotonic = monotonic
        self._urgent: dict[str, list[float]] = {}

    def leave(self, key: str, body: Object | None) -> None:
        self._urgent.pop(key, None)

    def decide(self, key: str, body: Object) -> FaultDecision:
        return decide(decode_shared(Server, body), read_node(self._nodes.get(key)), self._now())

    def is_words(self, body: Object, said: FaultDecision) -> bool:
        return not said.new or not self._may_be_urgent(body["metadata"]["name"])

    def tell(self, body: Object, said: FaultDecision) -> None:
        super().tell(body, said)
        name = body["metadata"]["name"]
        if said.new:
            self._urgent.setdefault(name, []).append(self._monotonic())
        node = self._nodes.get(name)
        if node is not None:
            for event in said.events:
                self._events.record(node, event.type, event.reason, event.message)
        for record in said.new:
            log.info(
                "fault was found", server=name, component=record.component, device=record.device, code=record.code,
                severity=record.severity,
            )  # fmt: skip

    def _may_be_urgent(self, name: str) -> bool:
        since = self._monotonic() - URGENT_SECONDS
        lately = [moment for moment in self._urgent.get(name, ()) if moment > since]
        if lately:
            self._urgent[name] = lately
        else:
            self._urgent.pop(name, None)
        return len(lately) < URGENT_WRITES


def build_fault_controller(
    cluster: Cluster,
    servers: Source,
    nodes: Source,
    events: Events,
    *,
    now: Callable[[], datetime],
) -> Controller:
    """The controller, following its caches. Build it anew for each leadership, run it while leading."""
    faults = FaultController(cluster, servers, nodes, events, now=now)
    controller = Controller("faults", faults.reconcile, workers=2)
    nodes.subscribe(when_changed(_of_node, controller.queue.add))
    servers.subscribe(when_changed(_of_server, controller.queue.add))
    return controller


def _of_node(node: Mapping[str, Any] | None) -> Any:
    """Everything of a Node that a source reads; not its heartbeats."""
    view = read_node(node)
    if view is None:
        return None
    conditions = tuple((each.type, each.status, each.reason, each.message) for each in view.conditions)
    return view.uid, view.boot_id, conditions, view.annotations.get(NODE_FACTS_ANNOTATION)


def _of_server(server: Mapping[str, Any] | None) -> Any:
    """What is on record, and whether the server is in use."""
    status = (server or {}).get("status") or {}
    return server is None, status.get("faults"), status.get("lifecycle")
