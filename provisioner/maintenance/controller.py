"""The executor's loop: one decision, one effect, then everything is read again."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.jobs.work import Workloads
from provisioner.maintenance.door import Door, MaintenanceInformers
from provisioner.maintenance.metrics import MaintenanceMetrics, NoMetrics

MANAGER: Final = "provisioner-maintenance"


class MaintenanceController:
    """Reconciles one server at a time, by name."""

    def __init__(
        self,
        cluster: Door,
        informers: MaintenanceInformers,
        workloads: Workloads,
        events: Events,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        metrics: MaintenanceMetrics | None = None,
    ) -> None:
        self._cluster = cluster
        self._informers = informers
        self._workloads = workloads
        self._events = events
        self._clock = clock
        self._new_id = new_id
        self._metrics = metrics or NoMetrics()

    def reconcile(self, name: str) -> float | None:
        """Bring the Maintenances of server `name` on; returns when to look again. Raises: Retryable, NeedsHuman."""
        raise NotImplementedError


def build_maintenance_controllers(
    cluster: Door,
    informers: MaintenanceInformers,
    workloads: Workloads,
    events: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    new_id: Callable[[], str] | None = None,
    *,
    rng: random.Random | None = None,
    metrics: MaintenanceMetrics | None = None,
    workers: int = 4,
) -> list[Controller]:
    """The executor, following its caches. Build it anew for each leadership, run it while leading."""
    source = rng or random.SystemRandom()
    executor = MaintenanceController(
        cluster,
        informers,
        workloads,
        events,
        clock=clock,
        new_id=new_id or (lambda: str(uuid.UUID(int=source.getrandbits(128), version=4))),
        metrics=metrics,
    )
    return [Controller("maintenance", executor.reconcile, workers=workers)]
