"""The boot controller against a real API server: caches, writes, conflicts, and a crash after every write."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.servers.server import JoinStatus, PowerStatus, ServerStatus
from provisioner.boot.orders.controller import MANAGER, BootController, build_boot_controllers
from provisioner.boot.orders.informers import BootInformers, find_other_node, machine_keys
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import LEASES, NODES, of
from provisioner.cluster.source import Index, KeysOf
from provisioner.rules.liveness import LeaseWatch
from tests.boot.objects import image, pool, rack, server
from tests.cluster.fake_events import FakeEvents
from tests.cluster.scanned_index import ScannedIndex

BOOT = "11111111-1111-4111-8111-111111111111"
DEADLINE_SECONDS = 180


class Crash(BaseException):
    """The controller's process ends here."""


class CrashingCluster:
    """The real door, that ends the process after so many writes."""

    def __init__(self, cluster: Cluster, writes: int) -> None:
        self._cluster = cluster
        self._writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def apply_status(self, *args: Any, **kwargs: Any) -> Any:
        result = self._cluster.apply_status(*args, **kwargs)
        self._writes -= 1
        if self._writes < 0:
            raise Crash
        return result


@dataclass
class World:
    """A rack with one server, and caches that follow it. The controller goes through `door`."""

    cluster: Cluster
    door: Cluster
    name: str
    informers: BootInformers
    events: FakeEvents

    def controller(
        self, cluster: Any = None, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> BootController:
        return BootController(cluster or self.door, self.informers, self.events, now=now, rng=random.Random(self.name))

    def read(self) -> Server:
        return self.cluster.read(Server, self.name)

    def look(self, controller: BootController) -> None:
        """Reconcile once, when the cache shows the server as it is now."""
        version = self.read().metadata.resource_version
        wait_until(lambda: (self.cached().get("metadata") or {}).get("resourceVersion") == version)
        controller.reconcile(self.name)

    def cached(self) -> Mapping[str, Any]:
        return self.informers.servers.get(self.name) or {}

    def settle(self, controller: BootController, until: Callable[[Server], bool]) -> Server:
        """Reconcile as the work queue would, until the server looks as wanted."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(Conflict):
                controller.reconcile(self.name)
            if until(self.read()):
                return self.read()
            time.sleep(0.05)
        raise AssertionError(f"{self.name} never got there: {self.read().status}")

    def power(self, **fields: Any) -> None:
        self.cluster.apply_status(
            Server, self.name, {"power": to_json(PowerStatus(**fields))}, manager="provisioner-power"
        )

    def join(self, **fields: Any) -> None:
        self.cluster.apply_status(
            Server, self.name, {"join": to_json(JoinStatus(**fields))}, manager="provisioner-join"
        )

    def node(self, *, ready: bool, boot_id: str = BOOT, name: str | None = None, system_uuid: str = "test") -> None:
        """Play the kubelet."""
        name = name or self.name
        meta = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.cluster.apply(meta, manager="test")
        now = rfc3339(datetime.now(UTC))
        condition = {
            "type": "Ready",
            "status": "True" if ready else "False",
            "reason": "Test",
            "message": "test",
            "lastTransitionTime": now,
            "lastHeartbeatTime": now,
        }
        self.cluster.patch(
            NODES,
            name,
            {"status": {"conditions": [condition], "nodeInfo": {**node_info(boot_id), "systemUUID": system_uuid}}},
            subresource="status",
        )

    def lease(self, renewed: datetime) -> None:
        self.cluster.apply(
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
             "metadata": {"name": self.name, "namespace": "kube-node-lease"},
             "spec": {"holderIdentity": self.name, "renewTime": rfc3339_micro(renewed)}},
            manager="test",
        )  # fmt: skip


def node_info(boot_id: str) -> dict[str, str]:
    fields = ("machineID", "systemUUID", "kernelVersion", "osImage", "containerRuntimeVersion", "kubeletVersion",
              "kubeProxyVersion", "operatingSystem", "architecture")  # fmt: skip
    return {**dict.fromkeys(fields, "test"), "bootID": boot_id}


def reason(server_: Server, type_: str = "Ready") -> str | None:
    return next((c.reason for c in server_.status.conditions if c.type == type_), None)


@pytest.fixture
def world(cluster: Cluster, controller_account: Cluster, unique: str) -> Iterator[World]:
    def create(resource: Any) -> None:
        body = encode(resource)
        body["metadata"] = {"name": resource.name}
        status = body.pop("status", None)
        cluster.create(of(type(resource)), body)
        if status:
            cluster.apply_status(type(resource), resource.name, status, manager="provisioner-inventory")

    def renamed(resource: Any, name: str) -> Any:
        from dataclasses import replace

        return replace(resource, metadata=replace(resource.metadata, name=name))

    mac = "02:" + ":".join(f"{b:02x}" for b in random.Random(unique).randbytes(5))
    create(renamed(rack(), f"{unique}-rack"))
    create(renamed(image(), f"{unique}-image"))
    create(pool(f"{unique}-pool", image_ref=f"{unique}-image"))
    create(server(unique, boot_mac_address=mac, rack_ref=f"{unique}-rack", node_pool_ref=f"{unique}-pool"))
    stop = threading.Event()
    follow = {
        "servers": Informer(controller_account, of(Server)), "pools": Informer(controller_account, of(NodePool)),
        "images": Informer(controller_account, of(Image)), "racks": Informer(controller_account, of(Rack)),
        "nodes": Informer(controller_account, NODES),
        "leases": Informer(controller_account, LEASES, namespace="kube-node-lease"),
        "maintenances": Informer(controller_account, of(Maintenance)),
    }  # fmt: skip
    for informer in follow.values():
        informer.start(stop)
    assert all(informer.wait_for_sync(DEADLINE_SECONDS) for informer in follow.values())
    yield World(cluster, controller_account, unique, BootInformers(**follow), FakeEvents())
    stop.set()
    cluster.delete(NODES, unique)
    cluster.delete(of(Server), unique)
    cluster.delete(of(NodePool), f"{unique}-pool")


def boot_to_ready(world: World, controller: Callable[[], BootController]) -> Server:
    """Drive a boot as BMC, machine and kubelet would; the controller acts in between."""
    ordered = world.settle(controller(), lambda s: s.status.order is not None)
    order = ordered.status.order
    assert order is not None
    world.power(order_id=order.id, order_time=rfc3339_micro(datetime.now(UTC)), state="On",
                observed_time=rfc3339_micro(datetime.now(UTC)))  # fmt: skip
    world.settle(controller(), lambda s: s.status.boot_stage == "Firmware")
    world.join(order_id=order.id, boot_id=BOOT, fetched_time=rfc3339_micro(datetime.now(UTC)))
    world.settle(controller(), lambda s: s.status.boot_stage == "Kubelet")
    world.node(ready=True)
    return world.settle(controller(), lambda s: reason(s) == "Ready")


def test_a_boot_is_ordered_followed_and_ends_ready(world: World) -> None:
    controller = world.controller()
    ready = boot_to_ready(world, lambda: controller)
    assert ready.status.order is not None
    assert ready.status.order.reason == "FirstBoot"
    assert ready.status.image_ref == f"{world.name}-image"
    assert ready.status.node_ref == world.name
    assert ready.status.boot_id == BOOT
    assert ready.status.ready_time is not None
    assert reason(ready, "Booted") == "Joined"
    assert world.events.reasons() == ["BootOrdered", "Ready"]


def test_the_controller_owns_its_fields_and_no_others(world: World) -> None:
    boot_to_ready(world, world.controller)
    body = world.cluster.get(of(Server), world.name)
    mine = [entry for entry in body["metadata"]["managedFields"] if entry["manager"] == MANAGER]
    assert [entry.get("subresource") for entry in mine] == ["status"]
    assert set(mine[0]["fieldsV1"]["f:status"]) == {
        "f:order", "f:bootStage", "f:bootID", "f:imageRef", "f:imageDigest", "f:nodePoolRef", "f:nodeRef",
        "f:readyTime", "f:conditions", "f:lifecycle"
    }  # fmt: skip
    assert body["status"]["address"] == "10.80.0.21"
    assert body["status"]["power"]["state"] == "On"


def test_the_first_order_says_booting_and_the_health_stage_takes_the_lifecycle_over(world: World) -> None:
    ordered = world.settle(world.controller(), lambda s: s.status.order is not None)
    assert ordered.status.lifecycle == "Booting"
    world.cluster.apply_status(Server, world.name, {"lifecycle": "Held"}, manager="provisioner-health")
    boot_to_ready(world, world.controller)
    assert world.read().status.lifecycle == "Held"
    body = world.cluster.get(of(Server), world.name)
    mine = next(entry for entry in body["metadata"]["managedFields"] if entry["manager"] == MANAGER)
    assert "f:lifecycle" not in mine["fieldsV1"]["f:status"]


def test_looking_again_writes_nothing(world: World) -> None:
    controller = world.controller()
    world.settle(controller, lambda s: s.status.order is not None)
    before = world.cluster.get(of(Server), world.name)["metadata"]["resourceVersion"]
    for _ in range(5):
        world.look(controller)
    assert world.cluster.get(of(Server), world.name)["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("writes", range(4))
def test_a_controller_killed_after_any_write_ends_in_the_same_state(world: World, writes: int) -> None:
    """After its first, second… write the process is gone; another one goes on with empty hands."""
    crashing = world.controller(CrashingCluster(world.door, writes))
    crashed = threading.Event()

    def controller() -> BootController:
        return world.controller() if crashed.is_set() else crashing

    class Surviving:
        def reconcile(self, name: str) -> float | None:
            try:
                return controller().reconcile(name)
            except Crash:
                crashed.set()
                return None

    ready = boot_to_ready(world, lambda: Surviving())  # type: ignore[arg-type,return-value]
    assert crashed.is_set()
    order = ready.status.order
    assert order is not None
    assert (order.attempt, order.reason) == (1, "FirstBoot"), "one order, whatever happened"
    assert reason(ready) == "Ready"


def test_two_controllers_at_once_give_one_order(world: World) -> None:
    """A leader that lost its lease without knowing: the resourceVersion lets one of them win."""
    start = threading.Barrier(2)
    failures: list[BaseException] = []

    def act(seed: int) -> None:
        controller = BootController(
            world.door, world.informers, world.events, now=lambda: datetime.now(UTC), rng=random.Random(seed)
        )
        start.wait(60)
        try:
            controller.reconcile(world.name)
        except Conflict as error:
            failures.append(error)

    threads = [threading.Thread(target=act, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert world.events.reasons() == ["BootOrdered"]
    order = world.read().status.order
    assert order is not None
    assert order.attempt == 1


def test_a_node_that_the_caches_do_not_know_yet_forbids_an_order(world: World) -> None:
    """Before an order is given the Node is read past every cache."""

    class FakeEmptySource:
        has_synced = True

        def get(self, name: str) -> None:
            return None

        def items(self) -> list[dict[str, Any]]:
            return []

        def index(self, keys_of: KeysOf) -> Index:
            return Index(keys_of)

        def subscribe(self, watcher: Any) -> None: ...

    world.node(ready=True)
    from dataclasses import replace

    blind = replace(world.informers, nodes=FakeEmptySource(), leases=FakeEmptySource())
    controller = BootController(world.door, blind, world.events, now=lambda: datetime.now(UTC), rng=random.Random(1))
    controller.reconcile(world.name)
    assert world.read().status.order is None
    assert reason(world.read()) == "Adopted"


def test_a_renewed_lease_forbids_what_a_refused_join_asks_for(world: World) -> None:
    ready = boot_to_ready(world, world.controller)
    order = ready.status.order
    assert order is not None
    now = datetime.now(UTC)
    world.join(order_id=order.id, boot_id=BOOT, fetched_time=rfc3339_micro(now), refused_reason="AlreadyFetched",
               refused_time=rfc3339_micro(now + timedelta(seconds=1)))  # fmt: skip
    world.node(ready=False)
    world.lease(now)
    wait_until(lambda: world.informers.leases.get(f"kube-node-lease/{world.name}") is not None)
    time_passed = [0.0]
    controller = BootController(
        world.door, world.informers, world.events, now=lambda: now + timedelta(seconds=time_passed[0]),
        rng=random.Random(1), leases=LeaseWatch(lambda: time_passed[0]),
    )  # fmt: skip
    held = world.settle(controller, lambda s: reason(s) == "NodeNotReady")
    assert held.status.order == order
    time_passed[0] = 700.0
    world.look(controller)
    assert world.read().status.order == order, "it came while the Node was alive"
    world.join(order_id=order.id, boot_id=BOOT, fetched_time=rfc3339_micro(now), refused_reason="AlreadyFetched",
               refused_time=rfc3339_micro(now + timedelta(seconds=690)))  # fmt: skip
    again = world.settle(controller, lambda s: s.status.order is not None and s.status.order.id != order.id)
    assert again.status.order is not None
    assert again.status.order.reason == "Unordered"
    assert again.status.ready_time is None
    world.node(ready=True)
    back = world.settle(controller, lambda s: s.status.order is not None and s.status.order.id == order.id)
    assert (reason(back), back.status.image_ref) == ("Ready", f"{world.name}-image")
    assert world.events.reasons()[-1] == "OrderRevoked"


@pytest.mark.parametrize("uuid", ["33221100-5544-7766-8899-AABBCCDDEEFF", "00112233-4455-6677-8899-aabbccddeeff"])
def test_a_machine_that_runs_under_another_name_is_not_booted(world: World, uuid: str) -> None:
    world.cluster.patch(of(Server), world.name, {"spec": {"systemUUID": "00112233-4455-6677-8899-aabbccddeeff"}})
    wait_until(lambda: "systemUUID" in world.cached()["spec"])
    other = f"{world.name}-other"
    world.node(ready=True, name=other, system_uuid=uuid)
    try:
        wait_until(lambda: world.informers.nodes.get(other) is not None)
        wait_until(lambda: bool((world.informers.nodes.get(other) or {})["status"].get("conditions")))
        found = world.settle(world.controller(), lambda s: reason(s) == "RunsAsOtherNode")
        assert found.status.order is None
        message = next(c.message for c in found.status.conditions if c.type == "Ready")
        assert f"kubectl delete node {other}" in message
    finally:
        world.cluster.delete(NODES, other)
    ordered = world.settle(world.controller(), lambda s: s.status.order is not None)
    assert ordered.status.order is not None
    assert ordered.status.order.reason == "FirstBoot"


def test_a_node_that_was_booted_here_is_no_other_machine_whatever_it_says_of_itself(world: World) -> None:
    """Root on a node can give it any address and UUID: nobody else's first boot waits for that."""
    world.cluster.patch(of(Server), world.name, {"spec": {"systemUUID": "00112233-4455-6677-8899-aabbccddeeff"}})
    wait_until(lambda: "systemUUID" in world.cached()["spec"])
    liar = f"{world.name}-liar"
    body = encode(
        server(liar, boot_mac_address="52:54:00:aa:bb:01", bmc=None, boot_address=None, serial_number=None, status=None)
    )
    world.cluster.create(of(Server), {**body, "metadata": {"name": liar}})
    world.cluster.apply_status(Server, liar, {"join": {"tokenID": "abcdef"}}, manager="tests")
    world.node(ready=True, name=liar, system_uuid="00112233-4455-6677-8899-aabbccddeeff")
    try:
        wait_until(lambda: bool(((world.informers.nodes.get(liar) or {}).get("status") or {}).get("conditions")))
        wait_until(lambda: "join" in ((world.informers.servers.get(liar) or {}).get("status") or {}))
        ordered = world.settle(world.controller(), lambda s: s.status.order is not None)
        assert ordered.status.order is not None
    finally:
        world.cluster.delete(NODES, liar)
        world.cluster.delete(of(Server), liar)


def test_a_node_with_the_servers_address_is_its_machine_only_while_it_lives() -> None:
    body = {
        "metadata": {"name": "worker-7"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.80.0.21"}]},
    }
    known = server("r01-u01")
    nodes = ScannedIndex(lambda: [body], machine_keys)
    assert find_other_node(known, nodes, lambda node: True) == "worker-7"
    assert find_other_node(known, nodes, lambda node: False) is None
    own = ScannedIndex(lambda: [{**body, "metadata": {"name": "r01-u01"}}], machine_keys)
    assert find_other_node(known, own, lambda node: True) is None
    assert find_other_node(server("r01-u01", status=ServerStatus()), nodes, lambda node: True) is None


def test_the_running_controller_reacts_to_pools_nodes_and_servers(world: World) -> None:
    world.cluster.patch(of(Server), world.name, {"spec": {"nodePoolRef": None}})
    stop = threading.Event()
    (controller,) = build_boot_controllers(
        world.door, world.informers, world.events, lambda: datetime.now(UTC), random.Random(2)
    )
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: reason(world.read()) == "NoNodePool")
        world.cluster.patch(of(Server), world.name, {"spec": {"nodePoolRef": f"{world.name}-pool"}})
        wait_until(lambda: world.read().status.order is not None)
        order = world.read().status.order
        assert order is not None
        now = rfc3339_micro(datetime.now(UTC))
        world.power(order_id=order.id, order_time=now, state="On", observed_time=now)
        world.join(order_id=order.id, boot_id=BOOT, fetched_time=now)
        world.node(ready=True)
        wait_until(lambda: reason(world.read()) == "Ready")
        world.node(ready=False)
        wait_until(lambda: reason(world.read()) == "NodeNotReady")
    finally:
        stop.set()
        thread.join(60)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
