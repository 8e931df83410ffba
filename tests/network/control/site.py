"""Tenants and machines of a test on a real API server; agents are played, each with its DPU's own certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from provisioner.api import VPC, DPUNetwork, NetworkClaim, NetworkPool, SecurityGroup, Server, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NAMESPACES, of
from tests.inventory.site import eventually
from tests.network.control import objects
from tests.people import kubeconfig_of

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane


class Site:
    """Everything in it is named after the test."""

    def __init__(self, cluster: Cluster, unique: str) -> None:
        self.cluster, self.name = cluster, unique
        self._number = int(unique[1:5], 16)
        self._servers: list[str] = []
        self._tenants: list[str] = []
        if cluster.find(of(NetworkPool), "default") is None:
            cluster.apply(objects.pool(10001, 20000), manager="tests")

    def tenant(self, name: str) -> str:
        """A namespace, and what it is called."""
        namespace = f"{self.name}-{name}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        self.cluster.create(NAMESPACES, body)
        self._tenants.append(namespace)
        return namespace

    def machine(self, number: int, tenant: str, **changes: Any) -> str:
        """A Server and its DPU; returns what both names begin with: `-s` and `-d` are the rest."""
        name = f"{self.name}-{number}"
        unique_number = (self._number + 7 * number) % 65536
        self.add(objects.tenants_server(f"{name}-s", tenant, unique_number))
        self.add(objects.card(f"{name}-d", f"{name}-s", unique_number, **changes))
        self._servers.append(name)
        return name

    def add(self, *bodies: dict[str, Any]) -> None:
        for body in bodies:
            self.cluster.apply(body, manager="tests")

    def network(self, machine: str) -> dict[str, Any] | None:
        return self.cluster.find(of(DPUNetwork), f"{machine}-d")

    def agent(self, plane: ControlPlane, folder: Path, machine: str) -> Cluster:
        """The cluster as the agent on the machine's DPU sees it, once it may read its DPUNetwork."""
        name = f"{machine}-d"
        path = kubeconfig_of(plane, folder, f"system:node:{name}", group="system:nodes")
        found = Cluster.connect(path, user_agent="dpu-agent")
        eventually(lambda: self.network(machine), f"DPUNetwork {name}")

        def reads() -> bool:
            try:
                return bool(found.get(of(DPUNetwork), name))
            except ProvisionerError:
                return False

        eventually(reads, f"{name} reads its DPUNetwork")
        return found

    def confirm(self, agent: Cluster, machine: str) -> int:
        """What the agent says once its kernel agrees with what it was told; returns the generation."""
        body = agent.get(of(DPUNetwork), f"{machine}-d")
        spec, generation = body["spec"], int(body["metadata"]["generation"])
        status = {
            "observedGeneration": generation,
            "vnis": [each["vni"] for each in spec.get("vpcs") or ()],
            "ports": [{"function": p["function"], "state": p["state"]} for p in spec.get("ports") or ()],
        }
        agent.apply_status(DPUNetwork, f"{machine}-d", status, manager="provisioner-dpu-agent")
        return generation

    def ready(self, namespace: str, name: str) -> tuple[str, str]:
        """Status and reason of an attachment's condition Ready."""
        found = find_condition(self.attachment(namespace, name).status.conditions, "Ready")
        return (found.status, found.reason) if found is not None else ("", "")

    def attachment(self, namespace: str, name: str) -> VPCAttachment:
        return decode(VPCAttachment, self.cluster.get(of(VPCAttachment), name, namespace=namespace))

    def vpc(self, namespace: str, name: str = "main") -> VPC:
        return decode(VPC, self.cluster.get(of(VPC), name, namespace=namespace))

    def becomes(self, namespace: str, name: str, *wanted: str) -> None:
        eventually(lambda: self.ready(namespace, name) == wanted, f"{wanted}; it is {self.ready(namespace, name)}")

    def claims(self) -> set[str]:
        """Names of the claims of this test's tenants."""
        return {
            str(each["metadata"]["name"])
            for each in self.cluster.list(of(NetworkClaim)).items
            if each["spec"]["holder"]["namespace"].startswith(self.name)
        }

    def tidy_up(self) -> None:
        for namespace in self._tenants:
            for kind in (VPCAttachment, VPC, SecurityGroup):
                for body in self.cluster.list(of(kind), namespace=namespace).items:
                    self.cluster.delete(of(kind), body["metadata"]["name"], namespace=namespace)
            self.cluster.delete(NAMESPACES, namespace)
        for name in self._servers:
            self.cluster.delete(of(Server), f"{name}-d")
            self.cluster.delete(of(Server), f"{name}-s")
            self.cluster.delete(of(DPUNetwork), f"{name}-d")
        for name in self.claims():
            self.cluster.delete(of(NetworkClaim), name)
