"""A booted server in the real API server, its Node played by the test, and a controller that follows its caches."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.errors import Conflict, Retryable
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION, PREPARED_ORDER_ANNOTATION, VERIFICATION_TAINT
from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.pools.pool_settings import ExpectedInventory, JobCheck, VerificationSettings
from provisioner.api.servers.server import BootOrder, JoinStatus
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import JOBS, LEASES, NAMESPACES, NODES, PODS, of
from provisioner.health.controller import HealthController, HealthInformers, build_job_runner, follow
from provisioner.health.jobs.manifest import CHECK_LABEL
from provisioner.health.skew import ClockSkew
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from tests.boot.objects import image, pool, rack, server
from tests.cluster.fake_events import FakeEvents
from tests.health.objects import BOOT, good_facts, nic

DEADLINE_SECONDS = 180
FOREIGN_TAINT = {"key": "example.com/foreign", "effect": "NoSchedule", "value": "kept"}
FOREIGN_CONDITION = {"type": "ExampleProblem", "status": "False", "reason": "NoProblem", "message": "of npd"}


class Crash(BaseException):
    """The controller's process ends here."""


class FailingCluster:
    """The real door, at which something goes wrong at the write after so many.

    fault: Crash, the write took effect and the process ends; any other, it is raised in place of the write, once.
    """

    WRITES = frozenset({"apply", "apply_status", "create", "patch", "patch_seen", "strategic_patch", "delete"})

    def __init__(self, cluster: Cluster, writes: int, fault: BaseException) -> None:
        self._cluster = cluster
        self._left = writes
        self._fault = fault
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._cluster, name)
        if name not in self.WRITES:
            return attribute

        def write(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left != -1:
                return attribute(*args, **kwargs)
            self.failed = True
            if isinstance(self._fault, Crash):
                attribute(*args, **kwargs)
            raise self._fault

        return write


@dataclass
class World:
    """One rack, one pool, one server; caches that follow them."""

    cluster: Cluster
    door: Cluster
    """What the controllers go through."""
    name: str
    informers: HealthInformers
    mac: str
    events: FakeEvents = field(default_factory=FakeEvents)
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def now(self) -> datetime:
        return datetime.now(UTC)

    def controller(self, cluster: Any = None) -> Callable[[str], float | None]:
        """A process of its own: nothing of one before is known to it."""
        door = cluster or self.door
        skew, runner = ClockSkew(self.now), build_job_runner(door, self.informers)
        controller = HealthController(
            door, self.informers, self.events, now=self.now, rng=random.Random(1), skew=skew,
            runner=runner,
        )  # fmt: skip
        follow(self.informers, skew, lambda key: None)
        skew.saw(self.name, {"spec": {"renewTime": rfc3339_micro(self.now() - timedelta(seconds=10))}},
                 {"spec": {"renewTime": rfc3339_micro(self.now())}})  # fmt: skip
        return controller.reconcile

    def wait_for_caches(self) -> None:
        """Until they show what the world begins with."""
        caches, deadline = self.informers, time.monotonic() + DEADLINE_SECONDS

        def node_is_whole() -> bool:
            return bool(((caches.nodes.get(self.name) or {}).get("status") or {}).get("conditions"))

        while not (
            caches.servers.get(self.name)
            and caches.pools.get(f"{self.name}-pool")
            and caches.images.get(f"{self.name}-image")
            and caches.racks.get(f"{self.name}-rack")
            and node_is_whole()
        ):
            assert time.monotonic() < deadline, "the caches do not follow"
            time.sleep(0.01)

    def settle(self, reconcile: Callable[[str], float | None], until: Callable[[], bool]) -> None:
        """Reconcile as the work queue would, until it looks as wanted."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(Retryable):
                reconcile(self.name)
            if until():
                return
            time.sleep(0.05)
        raise AssertionError(f"never got there: {self.server().status} {self.node()}")

    def server(self) -> Server:
        return self.cluster.read(Server, self.name)

    def verified(self) -> tuple[str, str] | None:
        return next(((c.status, c.reason) for c in self.server().status.conditions if c.type == "Verified"), None)

    def node(self) -> dict[str, Any]:
        return self.cluster.get(NODES, self.name)

    def taints(self) -> list[dict[str, Any]]:
        """Those that are not the node lifecycle controller's."""
        taints = self.node()["spec"].get("taints") or []
        return [taint for taint in taints if not taint["key"].startswith("node.kubernetes.io/")]

    def condition(self, type_: str) -> list[tuple[str, str]]:
        found = [c for c in self.node()["status"]["conditions"] if c["type"] == type_]
        return [(c["status"], c.get("reason", "")) for c in found]

    def jobs(self) -> list[dict[str, Any]]:
        selector = f"provisioner.dev/server={self.name}"
        return self.cluster.list(JOBS, label_selector=selector).items

    def order(self, order_id: str) -> None:
        """Play the boot controller."""
        order = BootOrder(id=order_id, reason="FirstBoot", ordered_time=rfc3339(self.began), attempt=1,
                          image_ref=f"{self.name}-image")  # fmt: skip
        self.cluster.apply_status(Server, self.name, {"order": to_json(order)}, manager="provisioner-boot-controller")

    def join(self, order_id: str, boot_id: str) -> None:
        """Play the join service."""
        join = JoinStatus(order_id=order_id, boot_id=boot_id, fetched_time=rfc3339_micro(self.began))
        self.cluster.apply_status(Server, self.name, {"join": to_json(join)}, manager="provisioner-join")

    def prepare(self, order_id: str) -> None:
        """Play the join controller: the mark of the order, and the taint with it."""
        taints = [FOREIGN_TAINT, {"key": VERIFICATION_TAINT, "effect": "NoExecute"}]
        body = {"metadata": {"annotations": {PREPARED_ORDER_ANNOTATION: order_id}}, "spec": {"taints": taints}}
        self.cluster.patch(NODES, self.name, body)

    def report(self, boot_id: str, *, facts: NodeFacts | None = None, ready: bool = True) -> None:
        """Play the kubelet and the agent."""
        status = "True" if ready else "False"
        conditions = [{"type": "Ready", "status": status, "reason": "KubeletReady", "message": "kubelet is posting"}]
        fields = ("machineID", "systemUUID", "kernelVersion", "osImage", "kubeletVersion", "kubeProxyVersion",
                  "operatingSystem", "architecture")  # fmt: skip
        info = {**dict.fromkeys(fields, "test"), "containerRuntimeVersion": "containerd://2.1", "bootID": boot_id}
        body = {"status": {"conditions": conditions, "nodeInfo": info}}
        self.cluster.strategic_patch(NODES, self.name, body, subresource="status")
        said = facts or good_facts(nics=(nic(self.mac),))
        text = json.dumps(to_json(replace(said, boot_id=boot_id)))
        self.cluster.patch(NODES, self.name, {"metadata": {"annotations": {NODE_FACTS_ANNOTATION: text}}})

    def renew_lease(self) -> None:
        spec = {"holderIdentity": self.name, "renewTime": rfc3339_micro(self.now())}
        body = {"apiVersion": LEASES.api_version, "kind": "Lease", "spec": spec,
                "metadata": {"name": self.name, "namespace": "kube-node-lease"}}  # fmt: skip
        self.cluster.apply(body, manager="tests")

    def boot(self, order_id: str = "order-1", boot_id: str = BOOT, **said: Any) -> None:
        self.order(order_id)
        self.prepare(order_id)
        self.join(order_id, boot_id)
        self.report(boot_id, **said)

    def ask(self, type_: str, status: str = "True", message: str = "by a test") -> None:
        """As `kubectl patch --subresource=status` does."""
        body = {"type": type_, "status": status, "reason": "Test", "message": message,
                "lastTransitionTime": rfc3339(self.now())}  # fmt: skip
        self.cluster.strategic_patch(NODES, self.name, {"status": {"conditions": [body]}}, subresource="status")

    def facts(self, **fields: Any) -> NodeFacts:
        return good_facts(nics=(nic(self.mac),), **fields)

    def finish_pod(self, job: str, namespace: str, *, code: int, message: str | None = None) -> None:
        """Play the kubelet of the check's pod: the Job controller makes it, and takes its end over."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            selector = f"batch.kubernetes.io/job-name={job}"
            pods = self.cluster.list(PODS, namespace=namespace, label_selector=selector).items
            if pods:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"the Job controller made no pod of {job}")
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}
        ended |= {"message": message} if message is not None else {}
        container = {"name": "check", "image": "i", "imageID": "i", "ready": False, "restartCount": 0,
                     "state": {"terminated": ended}}  # fmt: skip
        status = {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [container]}
        self.cluster.patch(PODS, pods[0]["metadata"]["name"], {"status": status}, namespace=namespace,
                           subresource="status")  # fmt: skip


@contextlib.contextmanager
def follow_all(door: Cluster) -> Iterator[HealthInformers]:
    """The caches of a health controller, in sync."""
    stop = threading.Event()
    informers = {
        "servers": Informer(door, of(Server)), "pools": Informer(door, of(NodePool)),
        "images": Informer(door, of(Image)), "racks": Informer(door, of(Rack)), "nodes": Informer(door, NODES),
        "leases": Informer(door, LEASES, namespace="kube-node-lease"),
        "maintenances": Informer(door, of(Maintenance)),
        "jobs": Informer(door, JOBS, label_selector=CHECK_LABEL),
        "pods": Informer(door, PODS, label_selector=CHECK_LABEL),
    }  # fmt: skip
    for informer in informers.values():
        informer.start(stop)
    assert all(informer.wait_for_sync(DEADLINE_SECONDS) for informer in informers.values())
    try:
        yield HealthInformers(**informers)
    finally:
        stop.set()


@contextlib.contextmanager
def make_world(
    cluster: Cluster,
    door: Cluster,
    unique: str,
    *checks: JobCheck,
    attempts: int = 1,
    informers: HealthInformers | None = None,
) -> Iterator[World]:
    """The objects, and caches that have them; taken away at the end. The Node bears a foreign taint and condition."""

    def create(resource: Any) -> None:
        body = encode(resource)
        body["metadata"] = {"name": resource.name}
        body.pop("status", None)
        cluster.create(of(type(resource)), body)

    def renamed(resource: Any, name: str) -> Any:
        return replace(resource, metadata=replace(resource.metadata, name=name))

    mac = "02:" + ":".join(f"{b:02x}" for b in random.Random(unique).randbytes(5))
    with contextlib.suppress(Conflict):
        cluster.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "provisioner-checks"}}
        )
    create(renamed(rack(), f"{unique}-rack"))
    create(renamed(image(), f"{unique}-image"))
    settings = VerificationSettings(expected=ExpectedInventory(cpus=128), checks=checks, attempts=attempts)
    create(pool(f"{unique}-pool", image_ref=f"{unique}-image", verification=settings))
    create(server(unique, boot_mac_address=mac, rack_ref=f"{unique}-rack", node_pool_ref=f"{unique}-pool"))
    marks = {SERVER_UID_ANNOTATION: cluster.read(Server, unique).metadata.uid}
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique, "annotations": marks}})
    cluster.strategic_patch(NODES, unique, {"status": {"conditions": [FOREIGN_CONDITION]}}, subresource="status")
    with contextlib.ExitStack() as stack:
        followed = informers or stack.enter_context(follow_all(door))
        world = World(cluster, door, unique, followed, mac)
        try:
            world.wait_for_caches()
            yield world
        finally:
            for job in world.jobs():
                cluster.delete(JOBS, job["metadata"]["name"], namespace=job["metadata"]["namespace"])
            for type_, name in ((NODES, unique), (of(Server), unique), (of(NodePool), f"{unique}-pool"),
                                (of(Rack), f"{unique}-rack"), (of(Image), f"{unique}-image")):  # fmt: skip
                cluster.delete(type_, name)
