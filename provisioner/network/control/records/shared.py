"""What the network's controllers have in common: caches, clocks, writes, and the frame of those that say something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller, Reconcile
from provisioner.cluster.events import Events
from provisioner.cluster.reconciler import Said, StatusReconciler
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Object, Source
from provisioner.cluster.work_queue import WorkQueue
from provisioner.network.control.records.facts import Facts
from provisioner.network.control.records.writes import Compilations, Generations


@dataclass(frozen=True, kw_only=True)
class NetworkParts:
    """Made anew for each leadership. `monotonic`: in seconds."""

    cluster: Cluster
    facts: Facts
    events: Events
    clock: Callable[[], datetime]
    monotonic: Callable[[], float]
    compilations: Compilations = field(default_factory=Compilations)
    generations: Generations = field(default_factory=Generations)

    def controller(self, name: str, reconcile: Reconcile, *, workers: int = 1) -> Controller:
        return Controller(name, reconcile, workers=workers, queue=WorkQueue(clock=self.monotonic))


class NetworkReconciler(StatusReconciler[Said]):
    """Says something of each object of `source`, and may write NetworkClaims for it."""

    def __init__(self, shared: NetworkParts, source: Source, *, settle_seconds: float = 0.0) -> None:
        super().__init__(
            shared.cluster,
            source,
            shared.events,
            caches=shared.facts.caches.all,
            now=shared.clock,
            settle_seconds=settle_seconds,
            monotonic=shared.monotonic,
        )
        self._facts = shared.facts

    def look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        return self._source.get(key) if type_ == of(self.owned.kind) else self._facts.caches.claims.get(name)
