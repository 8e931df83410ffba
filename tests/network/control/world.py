"""The network's controllers on an API server in memory, with agents that are played; time is the test's."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api import (
    VPC,
    DPUNetwork,
    NetworkClaim,
    NetworkPool,
    SecurityGroup,
    Server,
    VPCAttachment,
)
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import Resource
from provisioner.cluster.controller import Controller
from provisioner.cluster.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, ResourceType, of
from provisioner.network.control.controller import build_network_controllers
from provisioner.network.control.records.informers import NetworkInformers
from tests.cluster.fake_cluster import FakeCluster
from tests.cluster.fake_events import FakeEvents
from tests.maintenance.chaos.fake_informer import FakeInformer
from tests.network.control import objects

Object = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
STEP_SECONDS = 0.1


class Killed(BaseException):
    """The process ends here."""


class Door:
    """The cluster as the controllers see it: every write is counted, and may be the last one. before: the process dies
    before that write, else right after it. fault: what happens in place of that, and the process lives on."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.writes: list[str] = []
        self.last: int | None = None
        self.before = False
        self.fault: type[BaseException] = Killed

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        if name not in ("create", "apply", "apply_status", "patch", "delete"):
            return method

        def write(*arguments: Any, **named: Any) -> Any:
            what = f"{name} {arguments[0]} {arguments[1:2]}"
            is_last = self.last is not None and len(self.writes) + 1 >= self.last
            if is_last and self.fault is not Killed:
                self.last = None  # the process lives on
            if is_last and self.before:
                raise self.fault(what)
            self.writes.append(what)
            written = method(*arguments, **named)
            if is_last:
                raise self.fault(what)
            return written

        return write


class World:
    def __init__(self) -> None:
        self.now = START
        self.seconds = 0.0
        self.admin = FakeCluster(now=lambda: self.now)
        self.door = Door(self.admin)
        self.events = FakeEvents()
        self.silent: set[str] = set()
        self.lies: dict[str, Callable[[Object, Object], Object]] = {}
        self.controllers: list[Controller] = []
        self.informers: list[FakeInformer] = []
        self.reconciled: list[tuple[str, str]] = []
        self.lead()

    def lead(self) -> None:
        """Another leader begins, with nothing in its memory."""
        self.door.last, self.door.writes = None, []
        kinds: dict[str, ResourceType] = {
            "servers": of(Server),
            "vpcs": of(VPC),
            "attachments": of(VPCAttachment),
            "groups": of(SecurityGroup),
            "pools": of(NetworkPool),
            "claims": of(NetworkClaim),
            "networks": of(DPUNetwork),
            "roles": CLUSTER_ROLES,
            "bindings": CLUSTER_ROLE_BINDINGS,
        }

        def look(type_: ResourceType) -> Callable[[], dict[str, Object]]:
            return lambda: dict(self.admin.stored(type_))

        caches = {name: FakeInformer(type_, look(type_)) for name, type_ in kinds.items()}
        self.informers = list(caches.values())
        self.controllers = build_network_controllers(
            self.door,  # type: ignore[arg-type]
            NetworkInformers(**caches),  # type: ignore[arg-type]
            self.events,
            lambda: self.now,
            monotonic=lambda: self.seconds,
        )

    def settle(self, seconds: float = 5.0) -> None:
        """Let time pass; where nothing happens, in longer steps."""
        end, idle = self.seconds + seconds, 0
        while self.seconds < end:
            before = len(self.reconciled), len(self.admin.changes)
            self.step()
            idle = idle + 1 if before == (len(self.reconciled), len(self.admin.changes)) else 0
            if idle:
                self.pass_time(min(STEP_SECONDS * 2**idle, 2.0, max(0.0, end - self.seconds)))
        self.catch_up()

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds

    def catch_up(self) -> None:
        for informer in self.informers:
            informer.catch_up()

    def step(self) -> None:
        self.catch_up()
        for controller in self.controllers:
            # Only what is due now: what a key asks for again comes with the next step.
            for _ in range(len(controller.queue)):
                key = controller.queue.get(timeout=0)
                if key is None:
                    break
                self.reconciled.append((controller.name, key))
                controller._reconcile_one(key)
                controller.queue.done(key)
        for dpu in list(self.admin.stored(of(DPUNetwork))):
            if dpu not in self.silent:
                self.confirm(dpu)
        self.pass_time(STEP_SECONDS)

    def confirm(self, dpu: str) -> None:
        """What the agent on a DPU says once its kernel agrees."""
        body = self.network(dpu)
        spec = body["spec"]
        status = {
            "observedGeneration": body["metadata"]["generation"],
            "vnis": [each["vni"] for each in spec.get("vpcs") or ()],
            "ports": [{"function": p["function"], "state": p["state"]} for p in spec.get("ports") or ()],
        }
        status = self.lies.get(dpu, lambda _, honest: honest)(body, status)
        self.admin.apply_status(DPUNetwork, dpu, status, manager="provisioner-dpu-agent")

    # What people do

    def namespace(self, *names: str) -> None:
        for name in names:
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            self.admin.create(NAMESPACES, body)

    def add(self, *bodies: Object) -> None:
        for body in bodies:
            self.admin.apply(body, manager="tests")

    def machine(self, number: int, tenant: str, **changes: Any) -> None:
        """Server n with DPU n."""
        name = f"s{number}"
        self.add(objects.tenants_server(name, tenant, number), objects.card(f"d{number}", name, number, **changes))

    def change(self, kind: type[Resource], name: str, namespace: str | None = None, **spec: Any) -> None:
        self.admin.patch(of(kind), name, {"spec": spec}, namespace=namespace)

    def remove(self, kind: type[Resource], name: str, namespace: str | None = None) -> None:
        self.admin.delete(of(kind), name, namespace=namespace)

    # What is seen

    def network(self, dpu: str) -> Object:
        return self.admin.get(of(DPUNetwork), dpu)

    def spec(self, dpu: str) -> Object:
        spec: Object = self.network(dpu)["spec"]
        return spec

    def attachment(self, namespace: str, name: str) -> VPCAttachment:
        return decode(VPCAttachment, self.admin.get(of(VPCAttachment), name, namespace=namespace))

    def vpc(self, namespace: str, name: str = "main") -> VPC:
        return decode(VPC, self.admin.get(of(VPC), name, namespace=namespace))

    def ready(self, namespace: str, name: str) -> tuple[str, str]:
        """Status and reason of an attachment's condition Ready."""
        return _ready(self.attachment(namespace, name).status.conditions)

    def vpc_ready(self, namespace: str, name: str = "main") -> tuple[str, str]:
        return _ready(self.vpc(namespace, name).status.conditions)

    def message(self, namespace: str, name: str) -> str:
        found = find_condition(self.attachment(namespace, name).status.conditions, "Ready")
        assert found is not None
        return found.message

    def addresses(self, namespace: str) -> list[str]:
        """Of the attachments of a tenant."""
        found = [a for key, a in self.admin.stored(of(VPCAttachment)).items() if key.startswith(f"{namespace}/")]
        return [address for each in found for address in (each.get("status") or {}).get("addresses") or ()]

    def claims(self) -> dict[str, str]:
        """Who has claimed what: kind, namespace and name of the holder by name of the claim."""
        found = {}
        for name, body in self.admin.stored(of(NetworkClaim)).items():
            holder = body["spec"]["holder"]
            found[name] = f"{holder['namespace']}/{holder['name']}"
        return found


def _ready(conditions: Any) -> tuple[str, str]:
    found = find_condition(conditions, "Ready")
    return (found.status, found.reason) if found is not None else ("", "")
