"""A pool, its image and its servers on a real API server, with one executor; the test plays boot, join and health.

Simulated: time, jobs (fake_jobs.py), and what the other controllers and the machine would write.
"""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.meta import Resource, rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    MAINTENANCE_TAINT,
    NODE_FACTS_ANNOTATION,
    PREPARED_ORDER_ANNOTATION,
)
from provisioner.api.nodes.maintenance import MaintenanceStatus
from provisioner.api.pools.pool_settings import MaintenanceSettings
from provisioner.api.servers.dpu import DPU
from provisioner.cluster.client import Cluster
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from provisioner.maintenance.controller import MaintenanceController
from provisioner.maintenance.follow import MaintenanceInformers
from tests.boot import objects
from tests.cluster.fake_events import FakeEvents
from tests.maintenance.chaos.fake_informer import FakeInformer
from tests.maintenance.fake_jobs import FakeJobs

MOST_STEPS = 64
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
DIGEST, OTHER_DIGEST = objects.DIGEST, "sha256:" + "cd" * 32


class CaughtUpExecutor:
    """An executor that finds its caches up to date before each step, and goes on until it waits."""

    def __init__(self, executor: MaintenanceController, caches: list[FakeInformer]) -> None:
        self._executor, self._caches = executor, caches
        self.catch_up()

    def catch_up(self) -> None:
        for cache in self._caches:
            cache.catch_up()

    def reconcile_on_what_is_cached(self, name: str) -> float | None:
        return self._executor.reconcile(name)

    def reconcile(self, name: str) -> float | None:
        for _ in range(MOST_STEPS):
            self.catch_up()
            again = self._executor.reconcile(name)
            if again != BEHIND_SECONDS:
                return again
        raise AssertionError(f"{name} does not come to rest")


class Plane:
    """Everything is named after `unique`; the first server is `name`. The executor goes through `client`. has_card: the
    last server is a DPU in the first one."""

    def __init__(
        self, cluster: Cluster, client: Any, unique: str, *, servers: int = 1, has_card: bool = False, **settings: Any
    ) -> None:
        self.cluster, self.client, self.unique = cluster, client, unique
        self.now = NOON
        self.agent_stages = True
        self.jobs, self.events = FakeJobs(), FakeEvents()
        self.names = [f"{unique}-u{n + 1:02}" for n in range(servers)]
        self.name = self.names[0]
        self.image, self.other = f"{unique}-old", f"{unique}-new"
        self._ids, self._boots = itertools.count(1), itertools.count(1)
        wanted = {"max_unavailable": 1, "kexec_models": ("*",), **settings}
        pool = objects.pool(unique, image_ref=self.image, maintenance=MaintenanceSettings(**wanted))
        built_for: Any = "arm64" if has_card else "x86_64"
        self._create(objects.image(self.image, architecture=built_for))
        self._create(objects.image(self.other, digest=OTHER_DIGEST, architecture=built_for))
        self._create(pool)
        for number, name in enumerate(self.names):
            mac = f"52:54:00:{number:02x}:{unique[1:3]}:{unique[3:5]}"
            card: dict[str, Any] = {}
            if has_card and number == servers - 1:
                card = {"architecture": "arm64", "dpu": DPU(host_ref=self.name)}
            self._create(objects.server(name, node_pool_ref=unique, boot_mac_address=mac, rack_ref="r01", **card))
            self.make_node(name)
        self.executor = self.start()

    def start(self, cluster: Any = None) -> CaughtUpExecutor:
        """An executor, as after a restart: it knows nothing."""
        kinds = {"servers": Server, "pools": NodePool, "images": Image, "maintenances": Maintenance}
        client = cluster or self.client
        types = {name: of(kind) for name, kind in kinds.items()} | {"nodes": NODES}
        sources = {name: FakeInformer(type_, partial(self._mine, type_)) for name, type_ in types.items()}
        executor = MaintenanceController(
            client,
            MaintenanceInformers(**sources),  # type: ignore[arg-type]
            self.jobs,
            self.events,
            clock=lambda: self.now,
            new_id=lambda: f"{self.unique}-try-{next(self._ids)}",
        )
        return CaughtUpExecutor(executor, list(sources.values()))

    def _mine(self, type_: ResourceType) -> dict[str, dict[str, Any]]:
        """This test's objects of a kind: one by one, as other tests have left hundreds in the same API server."""
        if type_ == of(Maintenance):
            items = self.cluster.list(type_).items
            return {name: item for item in items if (name := item["metadata"]["name"]).startswith(self.unique)}
        names = {of(NodePool): [self.unique], of(Image): [self.image, self.other]}.get(type_, self.names)
        return {name: item for name in names if (item := self.cluster.find(type_, name)) is not None}

    # The executor

    def work(self, name: str | None = None, seconds: float = 0) -> None:
        """Let time pass, then let the executor do all that it has to do at that moment; wait out short pauses."""
        self.now += timedelta(seconds=seconds)
        for _ in range(16):
            try:
                again = self.executor.reconcile(name or self.name)
            except Conflict:
                continue
            if self.agent_stages and self._stage(name or self.name):
                continue
            if again is None or again > 4:
                return
            self.now += timedelta(seconds=again)

    # What people do

    def ask(
        self, type_: str, reason: str = "WhenIdle", message: str = "", *, name: str | None = None, **more: Any
    ) -> None:
        condition = {"type": type_, "status": "True", "reason": reason, "message": message, **more}
        self.set_condition(condition, name=name)

    def withdraw(self, type_: str) -> None:
        self.set_condition({"type": type_, "status": "False"})

    def set_condition(self, condition: dict[str, Any], *, name: str | None = None) -> None:
        patch = {"status": {"conditions": [condition]}}
        self.cluster.strategic_patch(NODES, name or self.name, patch, subresource="status", manager="kubectl")

    def file(self, number: int = 1, *requestors: dict[str, Any], name: str | None = None) -> str:
        """A Maintenance as the command line files it."""
        server = name or self.name
        body = {
            "apiVersion": "provisioner.dev/v1alpha1",
            "kind": "Maintenance",
            "metadata": {"name": f"{server}-{number}"},
            "spec": {"serverRef": server, "requestors": list(requestors)},
        }
        self.cluster.create(of(Maintenance), body)
        return f"{server}-{number}"

    def patch_node(self, patch: dict[str, Any], name: str | None = None) -> None:
        self.cluster.patch(NODES, name or self.name, patch)

    # What the machine and the other controllers do

    def make_node(self, name: str) -> None:
        metadata = {"name": name, "annotations": {SERVER_UID_ANNOTATION: f"uid-of-{name}"}}
        self.cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        self.cluster.patch(NODES, name, {"spec": {"taints": None}})
        self.run_boot(name, DIGEST)

    def run_boot(self, name: str, digest: str | None, *, ready: str = "True") -> str:
        """A kubelet reports a new boot, and the agent its image; `digest` None: there is no agent."""
        boot_id = f"00000000-0000-4000-8000-{next(self._boots):012}"
        moment = rfc3339(self.now)
        status = {
            "nodeInfo": {
                **dict.fromkeys(("machineID", "systemUUID", "kernelVersion", "osImage", "operatingSystem"), "x"),
                **dict.fromkeys(("architecture", "kubeletVersion", "kubeProxyVersion"), "x"),
                "containerRuntimeVersion": "x",
                "bootID": boot_id,
            },
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": moment}],
        }
        self.cluster.strategic_patch(NODES, name, {"status": status}, subresource="status")
        facts = {
            "format": 1,
            "bootID": boot_id,
            "imageDigest": digest,
            "time": moment,
            "product": "model",
            "cpus": 2,
            "memoryBytes": 1,
            "kexecSupported": True,
        }
        self.patch_node(
            {"metadata": {"annotations": {NODE_FACTS_ANNOTATION: json.dumps(facts) if digest else None}}}, name
        )
        return boot_id

    def order(self, name: str | None = None, *, prepared: bool = True) -> str:
        """The boot controller answers the attempt under way, and the join controller prepares the Node."""
        name = name or self.name
        tries = [m.status.reboot for m in self.maintenances(name) if m.status.reboot and not m.status.finished_time]
        attempt = tries[-1]
        order = {
            "id": f"order-{attempt.id}",
            "reason": "Requested",
            "orderedTime": rfc3339_micro(self.now),
            "attempt": 1,
            "method": attempt.method,
            "attemptID": attempt.id,
        }
        self.cluster.apply_status(Server, name, {"order": order}, manager="provisioner-boot-controller")
        if prepared:
            self.patch_node({"metadata": {"annotations": {PREPARED_ORDER_ANNOTATION: order["id"]}}}, name)
        return str(order["id"])

    def boot(self, digest: str | None = DIGEST, name: str | None = None, *, ready: str = "True") -> str:
        """The machine boots in the order under way, joins, and its kubelet reports."""
        name = name or self.name
        server = self.cluster.read(Server, name)
        boot_id = self.run_boot(name, digest, ready=ready)
        order = server.status.order
        if order is not None:
            join = {"orderID": order.id, "bootID": boot_id}
            self.cluster.apply_status(Server, name, {"join": join}, manager="provisioner-join")
        return boot_id

    def verify(self, boot_id: str, name: str | None = None, *, status: str = "True", rounds: int = 0) -> None:
        """The health controller has checked that boot. rounds: so many are over, and the last one has come out."""
        moment = rfc3339(self.now)
        condition = {
            "type": "Verified",
            "status": status,
            "reason": "Passed" if status == "True" else "Failed",
            "message": "disk is too small" if status == "False" else "all checks passed",
            "lastTransitionTime": moment,
        }
        verification: dict[str, Any] = {"bootID": boot_id, "attempt": max(1, rounds), "startedTime": moment}
        if rounds:
            result = "Passed" if status == "True" else "Failed"
            check = {"name": "Disks", "result": result, "reason": "Found", "message": "disk is too small"}
            verification |= {"finishedTime": moment, "checks": [check]}
        body = {"verification": verification, "conditions": [condition]}
        self.cluster.apply_status(Server, name or self.name, body, manager="provisioner-health")

    def fail_its_checks(self) -> str:
        """The boot that the executor waits for comes, and its checks fail for good; returns the boot id."""
        self.order()
        self.work()
        boot_id = self.boot()
        self.work()
        self.verify(boot_id, status="False", rounds=2)
        self.work()
        assert self.phase() == "Failed"
        return boot_id

    def _stage(self, name: str) -> bool:
        """The agent has staged at once what it was told to stage; whether there was anything to."""
        annotations = self.node(name)["metadata"].get("annotations") or {} if self._exists(name) else {}
        intent = json.loads(annotations.get(BOOT_INTENT_ANNOTATION) or "{}")
        answered = json.loads(annotations.get(BOOT_REPORT_ANNOTATION) or "{}")
        if intent.get("action") != "Stage" or answered.get("id") == intent["id"]:
            return False
        self.report("Staged", name=name)
        return True

    def _exists(self, name: str) -> bool:
        return self.cluster.find(NODES, name) is not None

    def report(self, state: str, message: str = "", *, name: str | None = None) -> None:
        """The agent answers what it was told last."""
        intent = self.intent(name)
        assert intent is not None
        report = {
            "id": intent["id"],
            "state": state,
            "imageDigest": intent["imageDigest"],
            "bootID": "x",
            "message": message,
            "time": rfc3339(self.now),
        }
        self.patch_node({"metadata": {"annotations": {BOOT_REPORT_ANNOTATION: json.dumps(report)}}}, name)

    # What is there

    def node(self, name: str | None = None) -> dict[str, Any]:
        return self.cluster.get(NODES, name or self.name)

    def taints(self, name: str | None = None) -> list[str]:
        return [t["key"] for t in self.node(name)["spec"].get("taints") or ()]

    def is_closed(self, name: str | None = None) -> bool:
        return MAINTENANCE_TAINT in self.taints(name)

    def intent(self, name: str | None = None) -> dict[str, Any] | None:
        text = (self.node(name)["metadata"].get("annotations") or {}).get(BOOT_INTENT_ANNOTATION)
        return json.loads(text) if text else None

    def condition(self, type_: str) -> dict[str, Any]:
        return next((c for c in self.node()["status"]["conditions"] if c["type"] == type_), {"status": "absent"})

    def maintenances(self, name: str | None = None) -> list[Maintenance]:
        found = [m for m in self.cluster.read_all(Maintenance) if m.spec.server_ref == (name or self.name)]
        return sorted(found, key=lambda m: int(m.name.rpartition("-")[2]))

    def status(self, name: str | None = None) -> MaintenanceStatus:
        """Of the newest Maintenance."""
        return self.maintenances(name)[-1].status

    def phase(self, name: str | None = None) -> str | None:
        return self.status(name).phase

    def _create(self, resource: Resource) -> None:
        body = encode(resource)
        body["metadata"].pop("uid", None)
        status = body.pop("status", None)
        self.cluster.create(of(type(resource)), body)
        if status:
            self.cluster.apply_status(type(resource), resource.name, status, manager="tests")  # type: ignore[attr-defined]
