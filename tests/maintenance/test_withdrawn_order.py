"""An order that nobody carried out, through the real controllers: the server comes back into production without a boot.

Real: API server, executor, boot, join's preparation of the Node, health. Played: jobs (FakeJobs), the kubelet, the
agent, the join service; the executor's clock can be put forward.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    PREPARED_ORDER_ANNOTATION,
    REBOOT_REQUESTED,
    VERIFICATION_TAINT,
)
from provisioner.boot.orders.controller import BootController
from provisioner.boot.orders.informers import BootInformers
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.join.nodes.node_controller import NodePreparer
from provisioner.maintenance.controller import MaintenanceController
from provisioner.maintenance.follow import MaintenanceInformers
from tests.api.objects import IMAGE_JUDGED
from tests.cluster.fake_events import FakeEvents
from tests.health.world import DEADLINE_SECONDS, World, make_world
from tests.maintenance.fake_jobs import FakeJobs, job


@dataclass
class Site:
    """All controllers of one server; `go_on` lets each of them look once."""

    world: World
    account: Callable[[str], Cluster]
    jobs: FakeJobs = field(default_factory=FakeJobs)
    ahead: timedelta = timedelta()
    controllers: list[Callable[[str], float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        world, caches, events, ids = self.world, self.world.informers, FakeEvents(), itertools.count(1)
        common = {key: getattr(caches, key) for key in ("servers", "pools", "images", "nodes", "maintenances")}
        executor = MaintenanceController(
            self.account("maintenance"),
            MaintenanceInformers(**common),
            self.jobs,
            events,
            clock=lambda: datetime.now(UTC) + self.ahead,
            new_id=lambda: f"{world.name}-try-{next(ids)}",
        )
        boot = BootController(
            self.account("orders"),
            BootInformers(**common, racks=caches.racks, leases=caches.leases),
            events,
            now=world.now,
            rng=random.Random(world.name),
        )
        preparer = NodePreparer(cluster=self.account("join"), recorder=events, now=world.now)
        self.controllers = [executor.reconcile, boot.reconcile, preparer.reconcile, world.controller()]

    def go_on(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            for reconcile in self.controllers:
                with contextlib.suppress(Retryable):
                    reconcile(self.world.name)
            self._stage()
            if until():
                return
            time.sleep(0.1)
        told = self.world.informers.maintenances.get(f"{self.world.name}-1")
        raise AssertionError(f"never got there: {told} {self.world.server().status} {self.world.node()}")

    def _stage(self) -> None:
        """The agent stages what it is told to, and is deaf to all else."""
        annotations = self.world.node()["metadata"].get("annotations") or {}
        intent = json.loads(annotations.get(BOOT_INTENT_ANNOTATION) or "{}")
        if intent.get("action") != "Stage" or f'"{intent["id"]}"' in annotations.get(BOOT_REPORT_ANNOTATION, ""):
            return
        words = {"state": "Staged", "bootID": intent["bootIDBefore"], "message": "", "time": rfc3339(self.world.now())}
        report = {"id": intent["id"], "imageDigest": intent["imageDigest"], **words}
        patch = {"metadata": {"annotations": {BOOT_REPORT_ANNOTATION: json.dumps(report)}}}
        self.world.cluster.patch(NODES, self.world.name, patch)

    @property
    def keys(self) -> set[str]:
        return {taint["key"] for taint in self.world.taints()}

    @property
    def order(self) -> Any:
        return self.world.server().status.order

    def lifecycle(self) -> str | None:
        return self.world.server().status.lifecycle

    def phase(self) -> str | None:
        found = self.world.informers.maintenances.get(f"{self.world.name}-1")
        return ((found or {}).get("status") or {}).get("phase")

    def is_prepared_anew(self) -> bool:
        annotations = self.world.node()["metadata"]["annotations"]
        return annotations.get(PREPARED_ORDER_ANNOTATION) not in (None, "order-1") and VERIFICATION_TAINT in self.keys


@pytest.fixture
def site(cluster: Cluster, account: Callable[[str], Cluster], unique: str) -> Iterator[Site]:
    """A server in production, and a Maintenance that has come to its one try, by kexec."""
    with make_world(cluster, account("health"), unique) as world:
        settings = {"kexecModels": ["*"], "rebootMethods": ["Kexec"]}
        cluster.patch(of(NodePool), f"{unique}-pool", {"spec": {"maintenance": settings}})
        moment = rfc3339(world.now())
        available = {"type": "Available", "status": "True", "reason": "Complete", "lastTransitionTime": moment}
        status = {"conditions": [{**available, "message": "complete"}, IMAGE_JUDGED]}
        cluster.apply_status(Image, f"{unique}-image", status, manager="provisioner-boot")
        address = {"address": "10.80.0.77", "subnetName": "boot"}
        cluster.apply_status(Server, unique, address, manager="provisioner-inventory")
        world.boot(facts=world.facts(kexec_supported=True, product="any"))
        world.renew_lease()
        site = Site(world, account)
        site.go_on(lambda: site.lifecycle() == "InProduction" and VERIFICATION_TAINT not in site.keys)
        asked = {"type": REBOOT_REQUESTED, "status": "True", "reason": "WhenIdle", "message": "new kernel"}
        cluster.strategic_patch(NODES, unique, {"status": {"conditions": [asked]}}, subresource="status")
        yield site


def is_back(site: Site) -> bool:
    verified = site.world.verified()
    return site.order.id == "order-1" and verified == ("True", "Passed") and VERIFICATION_TAINT not in site.keys


def test_a_reboot_that_never_happened_leaves_its_server_verified_and_in_production(site: Site) -> None:
    site.go_on(site.is_prepared_anew)
    site.ahead = timedelta(seconds=400)  # the agent is deaf; its time is over
    site.go_on(lambda: site.phase() == "Failed")
    site.go_on(lambda: is_back(site) and site.lifecycle() == "InProduction")


def test_a_boot_that_is_put_off_for_a_job_leaves_its_server_verified_and_waits(site: Site) -> None:
    def slip_in(look: int) -> None:
        if site.order.reason == "Requested":
            site.jobs.jobs = [job("ml/late")]

    site.jobs.before_look = slip_in
    site.go_on(lambda: site.phase() == "Waiting" and bool(site.jobs.jobs))
    site.go_on(lambda: is_back(site) and site.lifecycle() == "InProduction")
    assert site.phase() == "Waiting"
