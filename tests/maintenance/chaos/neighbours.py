"""The other controllers of the plane: the real code of boot, join and power, driven by hand on the same clock.

Real: BootController, NodePreparer, the power reconciler with its last look. Fake: BMCs, and what fake_host.py lists.
They do not crash here; their own tests have that.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.boot.orders.controller import BootController
from provisioner.boot.orders.informers import BootInformers
from provisioner.cluster.resources import LEASES, NODES, of
from provisioner.join.nodes.node_controller import NodePreparer
from provisioner.power.act import BmcActions, PowerSettings
from provisioner.power.preflight import Preflight
from provisioner.power.reconcile import ServerPowerReconciler
from provisioner.power.record import Record
from provisioner.rules.liveness import LeaseWatch
from tests.maintenance.chaos.fake_informer import FakeInformer
from tests.maintenance.chaos.fake_machine import FakeBmcPool
from tests.maintenance.chaos.fake_time import FakeClock
from tests.maintenance.chaos.replica import StoryEvents
from tests.maintenance.chaos.story import Story

SETTINGS = PowerSettings(poll_seconds=600, off_seconds=5)


class Neighbours:
    """Boot, join and power for some servers."""

    def __init__(
        self,
        service: Callable[[str], Any],
        look: Callable[[Any], Callable[[], dict[str, Any]]],
        bmcs: FakeBmcPool,
        clock: FakeClock,
        story: Story,
    ) -> None:
        self._clock, self._story = clock, story
        kinds = {"servers": Server, "pools": NodePool, "images": Image, "racks": Rack, "maintenances": Maintenance}
        sources = {name: FakeInformer(of(kind), look(of(kind))) for name, kind in kinds.items()}
        sources |= {"nodes": FakeInformer(NODES, look(NODES)), "leases": FakeInformer(LEASES, look(LEASES))}
        self._informers = sources
        events: Any = StoryEvents(story, "boot")
        leases = LeaseWatch(clock.monotonic)
        informers = BootInformers(**sources)  # type: ignore[arg-type]
        self._boot = BootController(
            service("orders"), informers, events, now=clock, rng=random.Random(1), leases=leases
        )
        self._join = NodePreparer(cluster=service("join"), recorder=StoryEvents(story, "join"), now=clock)
        by_power = service("power")
        record = Record(by_power, StoryEvents(story, "power"), now=clock)
        self._power = ServerPowerReconciler(
            by_power,
            sources["servers"],  # type: ignore[arg-type]
            bmcs,  # type: ignore[arg-type]
            BmcActions(SETTINGS, record, Preflight(by_power, None, now=clock)),
            record,
            SETTINGS,
            now=clock,
            spread=lambda seconds: seconds,
        )
        self._due: dict[tuple[str, str], datetime] = {}

    def react(self, servers: list[str], *, changed: bool) -> None:
        """Let each look at each server whose time has come; at all of them if anything changed."""
        for server in servers:
            for who, reconcile in (
                ("boot", self._boot.reconcile),
                ("join", self._join.reconcile),
                ("power", self._power.reconcile),
            ):
                due = self._due.get((who, server))
                if changed or (due is not None and due <= self._clock.now):
                    self._step(who, server, reconcile)

    def next_moment(self) -> datetime | None:
        return min((due for due in self._due.values() if due > self._clock.now), default=None)

    def _step(self, who: str, server: str, reconcile: Callable[[str], float | None]) -> None:
        for informer in self._informers.values():
            informer.catch_up()
        try:
            seconds = reconcile(server)
        except Retryable as error:
            seconds = max(1.0, error.after_seconds)
        except NeedsHuman as error:
            self._story.tell(who, f"needs a person: {error}")
            seconds = 5.0
        if seconds is None:
            self._due.pop((who, server), None)
        else:
            self._due[(who, server)] = self._clock.in_seconds(max(seconds, 0.1))
