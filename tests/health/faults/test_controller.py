"""The controller of fault records: what it writes, when, how often, and of which objects it tells."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION
from provisioner.api.nodes.facts import GpuXidFacts, ObservedFault
from provisioner.api.servers.faults import FaultRecord
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.health.faults.controller import (
    MANAGER,
    PATIENCE_SECONDS,
    SETTLE_SECONDS,
    TOLD_AN_HOUR,
    URGENT_SECONDS,
    URGENT_WRITES,
    FaultController,
    build_fault_controller,
)
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.fake_events import FakeEvents
from tests.health.faults.records import GPU, observed
from tests.health.objects import BOOT, NOON, after, booted, good_facts, node_body
from tests.health.world import World, make_world
from tests.maintenance.chaos.fake_informer import FakeInformer

NAME = "r01-u01"


class Site:
    """One server in use and its Node in an API server in memory, whose caches follow at once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cluster = FakeCluster(lambda: after(self.seconds))
        self.servers = FakeInformer(of(Server), lambda: dict(self.cluster.stored(of(Server))))
        self.nodes = FakeInformer(NODES, lambda: dict(self.cluster.stored(NODES)))
        self.events = FakeEvents()
        body = encode(booted(lifecycle="InProduction"))
        status = body.pop("status")
        body["metadata"] = {"name": NAME}
        self.cluster.create(of(Server), body)
        self.cluster.apply_status(Server, NAME, status, manager="tests")
        self.cluster.create(NODES, node_body())
        self.controller = FaultController(
            self.cluster,  # type: ignore[arg-type]
            self.servers,
            self.nodes,
            self.events,
            now=lambda: after(self.seconds),
            rng=random.Random(1),
            monotonic=lambda: self.seconds,
        )

    def report(self, *faults: ObservedFault, **facts: Any) -> float | None:
        """The node says so, and the controller looks. Returns: after how many seconds it looks again."""
        text = json.dumps(to_json(good_facts(faults=faults, **facts)))
        self.cluster.patch(NODES, NAME, {"metadata": {"annotations": {NODE_FACTS_ANNOTATION: text}}}, manager="kubelet")
        return self.look()

    def look(self) -> float | None:
        self.servers.catch_up()
        self.nodes.catch_up()
        return self.controller.reconcile(NAME)

    @property
    def faults(self) -> tuple[FaultRecord, ...]:
        return self.cluster.read(Server, NAME).status.faults

    @property
    def writes(self) -> int:
        """How often the server was written."""
        return sum(each.type == of(Server) for each in self.cluster.changes)


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_server_that_is_well_is_never_written(site: Site) -> None:
    before = site.writes
    for _ in range(3):
        site.seconds += 300
        site.look()
    assert site.writes == before


def test_a_new_fault_is_written_at_once_and_told_of_server_and_node(site: Site) -> None:
    site.report(gpu_xids=(GpuXidFacts(address=GPU, xid=79),))
    (found,) = site.faults
    assert (found.code, found.boot_id, found.first_time) == ("XID79", BOOT, "2026-01-02T12:00:00Z")
    assert site.events.reasons("Server") == site.events.reasons("Node") == ["FaultFound"]


def test_a_count_waits_for_a_minute_and_is_written_once(site: Site) -> None:
    site.report(observed(count=1))
    before = site.writes
    for count in range(2, 10):
        site.seconds += 5
        rest = site.report(observed(count=count))
        assert rest is not None
        assert 0 < rest <= SETTLE_SECONDS
    assert site.writes == before
    site.seconds += SETTLE_SECONDS
    site.look()
    assert site.writes == before + 1
    assert [each.count for each in site.faults] == [9]
    assert site.events.reasons("Server") == ["FaultFound"], "more of it is no news"


def test_a_fault_that_becomes_worse_is_written_at_once(site: Site) -> None:
    site.report(observed(severity="Info"))
    assert site.events.reasons() == []
    site.report(observed(severity="Critical"))
    assert [each.severity for each in site.faults] == ["Critical"]
    assert site.events.reasons("Server") == ["FaultFound"]


def test_a_node_that_makes_faults_up_has_few_written_a_minute_and_an_honest_one_all(site: Site) -> None:
    site.report(*(observed(f"XID{at}", device=f"d{at}") for at in range(20)))
    assert len(site.faults) == 20, "many at once are one write"
    before, lied = site.writes, 200
    for at in range(lied):
        site.seconds += URGENT_SECONDS / lied / 2
        site.report(observed(f"Made{at}"))
    assert site.writes - before <= URGENT_WRITES
    for at in range(30):
        site.seconds += URGENT_SECONDS + 1
        site.report(observed(f"Later{at}", device=f"l{at}"))
    for kind in ("Server", "Node"):
        told = {each.message for each in site.events.told if each.kind == kind}
        assert len(told) <= TOLD_AN_HOUR + 1, "what is more is told of in the same words, which are only counted"
    site.seconds += 2 * URGENT_SECONDS
    site.report(observed("XID48", device=GPU))
    assert "XID48" in {each.code for each in site.faults}


def test_a_node_that_is_gone_leaves_the_records_and_a_server_that_is_gone_nothing(site: Site) -> None:
    site.report(observed())
    records = site.faults
    site.cluster.delete(NODES, NAME)
    site.seconds += 600
    site.look()
    assert site.faults == records
    site.cluster.delete(of(Server), NAME)
    assert site.look() is None
    assert site.controller._since == {}


def test_a_heartbeat_is_no_reason_to_look_and_a_condition_is(site: Site) -> None:
    site.look()
    controller = build_fault_controller(
        site.cluster,  # type: ignore[arg-type]
        site.servers,
        site.nodes,
        site.events,
        now=lambda: NOON,
    )

    def looks() -> int:
        site.nodes.catch_up()
        count = 0
        while (key := controller.queue.get(timeout=0.0)) is not None:
            assert key == NAME
            controller.queue.done(key)
            count += 1
        return count

    looks()
    body = site.cluster.get(NODES, NAME)
    beat = [{**each, "lastHeartbeatTime": "2026-01-02T12:00:10Z"} for each in body["status"]["conditions"]]
    site.cluster.patch(NODES, NAME, {"status": {"conditions": beat}}, subresource="status", manager="kubelet")
    assert looks() == 0
    deadlock = {"type": "KernelDeadlock", "status": "True", "reason": "DockerHung", "message": "hung"}
    site.cluster.patch(NODES, NAME, {"status": {"conditions": [*beat, deadlock]}}, subresource="status", manager="npd")
    assert looks() == 1


def silent(site: Site, *, lifecycle: str = "InProduction", status: str = "Unknown") -> float | None:
    """The kubelet is no longer heard. Returns: after how many seconds the controller looks again."""
    said = {k: v for k, v in to_json(site.cluster.read(Server, NAME).status).items() if k != "faults"}
    site.cluster.apply_status(Server, NAME, {**said, "lifecycle": lifecycle}, manager="tests")
    conditions = [{"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "silent"}]
    site.cluster.patch(NODES, NAME, {"status": {"conditions": conditions}}, subresource="status", manager="kubelet")
    return site.look()


def test_a_kubelet_that_is_silent_for_long_is_a_fault_and_one_that_restarts_is_none(site: Site) -> None:
    rest = silent(site)
    assert rest == PATIENCE_SECONDS
    site.seconds += PATIENCE_SECONDS - 1
    silent(site, status="True")
    assert site.faults == (), "it was away for a moment"
    silent(site)
    site.seconds += PATIENCE_SECONDS
    site.look()
    assert [each.code for each in site.faults] == ["NodeUnreachable"]


@pytest.mark.parametrize("lifecycle", ["Booting", "Booted", "Maintenance", "Accepted", "Retired", "Held"])
def test_a_kubelet_that_is_silent_while_the_server_boots_or_is_disturbed_is_none(site: Site, lifecycle: str) -> None:
    silent(site, lifecycle=lifecycle)
    site.seconds += 10 * PATIENCE_SECONDS
    site.look()
    assert site.faults == ()


@pytest.fixture
def world(cluster: Cluster, controller_account: Cluster, unique: str) -> Iterator[World]:
    with make_world(cluster, controller_account, unique) as world:
        yield world


def test_the_account_writes_faults_and_the_api_server_bounds_them(world: World) -> None:
    controller = FaultController(
        world.door, world.informers.servers, world.informers.nodes, world.events, now=world.now, settle_seconds=0.0
    )
    strange = observed("\x1b[31m", device="nvme0\n" + "x" * 500, component="Moon", count=10**20, evidence="e" * 5000)
    world.boot(facts=world.facts(faults=(observed(), strange), gpu_xids=(GpuXidFacts(address=GPU, xid=31),)))
    world.settle(controller.reconcile, lambda: len(world.server().status.faults) == 3)
    by_code = {each.code: each for each in world.server().status.faults}
    assert set(by_code) == {"XID79", "XID31", "Unknown"}
    assert by_code["Unknown"].component == "System"
    assert "FaultFound" in world.events.reasons("Server")
    entries = world.cluster.get(of(Server), world.name)["metadata"]["managedFields"]
    assert [each["fieldsV1"]["f:status"].keys() for each in entries if each["manager"] == MANAGER] == [{"f:faults"}]
    world.report(BOOT)
    world.settle(controller.reconcile, lambda: not any(each.reported for each in world.server().status.faults))
    assert len(world.server().status.faults) == 3, "nothing goes because the node is silent"
    for bad in ({"severity": "Fine"}, {"code": "no code"}, {"evidence": "x" * 300}, {"count": 0}, {"device": "a b"}):
        body = to_json(by_code["XID79"]) | bad
        with pytest.raises(Refused):
            world.door.apply_status(Server, world.name, {"faults": [body]}, manager=MANAGER)
