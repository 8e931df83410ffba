"""Servers with Nodes in the shared control plane, and kubectl's plugin called on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from provisioner.api import Maintenance, NodePool, Server
from provisioner.cli.kubectl.filing import read_maintenances
from provisioner.cli.main import kubectl
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of

API = "provisioner.dev/v1alpha1"


@dataclass
class RackOfNodes:
    """Servers `<prefix>-u01`… of the pool `<prefix>`; `admin` writes, `kubeconfig` is the asker's."""

    admin: Cluster
    kubeconfig: Path
    prefix: str
    names: list[str] = field(default_factory=list)

    def add(self, *, node: bool = True, **spec: Any) -> str:
        """One more server, accepted, with a BMC; its Node as well. Returns its name."""
        name = f"{self.prefix}-u{len(self.names) + 1:02d}"
        digits = self.prefix[1:]
        wanted = {
            "bootMACAddress": f"52:54:{digits[0:2]}:{digits[2:4]}:{digits[4:6]}:{len(self.names):02x}",
            "rackRef": "r01",
            "acceptance": "Accepted",
            "nodePoolRef": self.prefix,
            "bmc": {"address": "https://10.90.0.11"},
        } | spec
        body = {"apiVersion": API, "kind": "Server", "metadata": {"name": name}}
        self.admin.create(of(Server), body | {"spec": {k: v for k, v in wanted.items() if v is not None}})
        if node:
            labels = {"provisioner.dev/pool": self.prefix}
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "all is well"}
            body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
            self.admin.create(NODES, body | {"status": {"conditions": [ready]}})
        self.names.append(name)
        return name

    def add_pool(self) -> None:
        spec = {"imageRef": "gpu-node-1", "attestation": "Optional"}
        self.admin.create(
            of(NodePool), {"apiVersion": API, "kind": "NodePool", "metadata": {"name": self.prefix}, "spec": spec}
        )

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """`kubectl provision …`, with the asker's kubeconfig."""
        return CliRunner().invoke(kubectl, [*arguments, "--kubeconfig", str(self.kubeconfig)], input=stdin)

    def done(self, *arguments: str) -> str:
        """The same, where it must work; what it printed."""
        result = self.run(*arguments)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    def filed(self, server: str) -> list[Maintenance]:
        return read_maintenances(self.admin, server)

    def executor_says(self, maintenance: str, **status: Any) -> None:
        """What the executor would write; it does not run here."""
        self.admin.apply_status(Maintenance, maintenance, status, manager="provisioner-maintenance")

    def condition(self, node: str, type_: str) -> dict[str, Any] | None:
        conditions = self.admin.get(NODES, node)["status"].get("conditions", [])
        return next((c for c in reversed(conditions) if c["type"] == type_), None)

    def remove(self) -> None:
        for name in self.names:
            for m in self.filed(name):
                self.admin.delete(of(Maintenance), m.name)
            self.admin.delete(NODES, name)
            self.admin.delete(of(Server), name)
        self.admin.delete(of(NodePool), self.prefix)
