"""Keeps the fault records of Servers (`status.faults`). It reads caches alone, and writes nothing else."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from math import inf
from typing import Any, Final

import structlog

from provisioner.api import Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION
from provisioner.api.nodes.facts import ObservedFault
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.reconciler import StatusReconciler
from provisioner.cluster.source import Object, Source, when_changed
from provisioner.health.faults.decision import IN_USE, FaultDecision, decide
from provisioner.health.faults.normalise import unique
from provisioner.health.faults.sources import PATIENT_SOURCES, observe
from provisioner.rules.nodes import NodeView, read_node
from provisioner.rules.ownership import owned_by

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-faults"
SETTLE_SECONDS: Final = 60.0
"""How often counts, and whether a fault is reported, are written for one server; a new or worse fault at once."""
URGENT_WRITES: Final = 8
"""For one server within URGENT_SECONDS: a node that makes faults up has them written no more often than counts."""
URGENT_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 120.0
"""How long a kubelet, runtime or driver must have been without life: each is restarted in less, as is an API server."""
TOLD_AN_HOUR: Final = 16
"""Events of one server; of what is more, one tells that there is more. A node that makes faults up hides no other's."""
HOUR_SECONDS: Final = 3600.0
MOST_MOMENTS: Final = 32

FaultKey = tuple[str, str, str, str]


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
        self._urgent = Moments(URGENT_SECONDS, monotonic)
        self._told = Moments(HOUR_SECONDS, monotonic)
        self._since: dict[str, dict[FaultKey, float]] = {}

    def leave(self, key: str, body: Object | None) -> None:
        self._urgent.forget(key)
        self._told.forget(key)
        self._since.pop(key, None)

    def decide(self, key: str, body: Object) -> FaultDecision:
        server, node = decode_shared(Server, body), read_node(self._nodes.get(key))
        lasting, rest = self._lasting(server, node)
        return replace(decide(server, node, self._now(), lasting), requeue_after_seconds=rest)

    def _lasting(self, server: Server, node: NodeView | None) -> tuple[list[ObservedFault], float | None]:
        """What PATIENT_SOURCES find, on record already or for long enough; and in how many seconds the next is."""
        found = unique(observe(node, PATIENT_SOURCES)) if node is not None and self._is_in_use(server) else {}
        known, moment = {record.key for record in server.status.faults if record.reported}, self._monotonic()
        before = self._since.pop(server.name, {})
        since = {key: before.get(key, moment) for key in found if key not in known}
        if since:
            self._since[server.name] = since
        rests = [rest for begun in since.values() if (rest := begun + PATIENCE_SECONDS - moment) > 0]
        lasting = [each for key, each in found.items() if since.get(key, -inf) + PATIENCE_SECONDS <= moment]
        return lasting, min(rests, default=None)

    def _is_in_use(self, server: Server) -> bool:
        """A DPU has no power while its host is without."""
        host = self._source.get(server.spec.dpu.host_ref) if server.spec.dpu is not None else None
        lifecycles = [server.status.lifecycle, *([(host.get("status") or {}).get("lifecycle")] if host else [])]
        return all(each in IN_USE for each in lifecycles)

    def is_words(self, body: Object, said: FaultDecision) -> bool:
        urgent = any(record.severity != "Info" for record in said.new)
        return not urgent or self._urgent.count(body["metadata"]["name"]) >= URGENT_WRITES

    def tell(self, body: Object, said: FaultDecision) -> None:
        name = body["metadata"]["name"]
        if said.new:
            self._urgent.note(name)
        node = self._nodes.get(name)
        for event in said.events:
            message = event.message
            if self._told.count(name) >= TOLD_AN_HOUR:
                message = f"more faults were found: kubectl provision health {name}"
            self._told.note(name)
            for about in (body, node):
                if about is not None:
                    self._events.record(about, event.type, event.reason, message)
        for record in said.new:
            log.info(
                "fault was found", server=name, component=record.component, device=record.device, code=record.code,
                severity=record.severity,
            )  # fmt: skip


class Moments:
    """When something happened lately, by name: of each name the last few."""

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self._seconds, self._monotonic = seconds, monotonic
        self._noted: dict[str, deque[float]] = {}

    def note(self, name: str) -> None:
        self._noted.setdefault(name, deque(maxlen=MOST_MOMENTS)).append(self._monotonic())

    def count(self, name: str) -> int:
        """How often within the last seconds, up to MOST_MOMENTS."""
        since = self._monotonic() - self._seconds
        lately = sum(moment > since for moment in self._noted.get(name, ()))
        if not lately:
            self._noted.pop(name, None)
        return lately

    def forget(self, name: str) -> None:
        self._noted.pop(name, None)


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
