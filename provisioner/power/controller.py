"""Carries out boot orders and wanted power states through the BMCs, and keeps an eye on the power."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.informer import Informer
from provisioner.cluster.source import conditions_of
from provisioner.power.act import BmcActions
from provisioner.power.act import PowerSettings as PowerSettings
from provisioner.power.bmc.pool import BmcPool
from provisioner.power.bmc_queues import BmcQueues
from provisioner.power.preflight import Preflight
from provisioner.power.reconcile import ServerPowerReconciler
from provisioner.power.record import Record
from provisioner.power.standing import recorded


def build_power_controllers(
    cluster: Cluster,
    servers: Informer,
    recorder: Events,
    settings: PowerSettings,
    *,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    pool: BmcPool | None = None,
    stop: threading.Event | None = None,
) -> list[Controller]:
    """The power controllers of one leadership. `servers` is an informer of Server; run all that are returned.

    `stop` ends the leadership: once it is set no BMC is told anything any more, also by work that is under way.
    """

    def spread(seconds: float) -> float:
        # So that the servers of a rack do not stay in step.
        return seconds * random.uniform(0.8, 1.2)  # noqa: S311

    pool = pool or BmcPool(cluster, clock=time.monotonic)
    preflight = Preflight(cluster, stop, now=now)
    record = Record(cluster, recorder, now=now)
    act = BmcActions(settings, record, preflight)
    power = ServerPowerReconciler(cluster, servers, pool, act, record, settings, now=now, spread=spread)
    queues = BmcQueues(power.reconcile, workers=settings.workers, spread=spread, on_end=pool.close)

    def on_change(key: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if old is None or new is None or _concern(old) != _concern(new):
            queues.add(key, recorded(new or {}))

    servers.subscribe(on_change)
    return queues.controllers


def _concern(server: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a Server matters to its power at once. Its own reports and most conditions do not."""
    status = server.get("status") or {}
    accepted = [(c.get("status"), c.get("reason")) for c in conditions_of(server, "Accepted")]
    return server["metadata"].get("generation"), (status.get("order") or {}).get("id"), accepted
