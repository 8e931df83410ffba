"""Pods, budgets and a node on the real API server. There is no kubelet: the tests say what one would."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.servers.server import Server, ServerSpec
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NAMESPACES, POD_DISRUPTION_BUDGETS, PODS
from provisioner.jobs.cluster_workloads import ClusterWorkloads
from tests.cluster.fake_events import FakeEvents

Body = dict[str, Any]


class Site:
    """A namespace and two servers, by names of their own."""

    def __init__(self, cluster: Cluster, unique: str) -> None:
        self.cluster = cluster
        self.namespace = unique
        self.node, self.other = f"{unique}-u01", f"{unique}-u02"
        self.now = datetime.now(UTC)
        self.events = FakeEvents()
        self.workloads = ClusterWorkloads(cluster, self.events, now=lambda: self.now)
        for body in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": unique}},
        ):
            cluster.apply(body, manager="test")

    @property
    def server(self) -> Server:
        return Server(metadata=ObjectMeta(name=self.node), spec=ServerSpec(boot_mac_address="52:54:00:00:00:01"))

    def run(self, body: Body, *, node: str | None = None) -> Body:
        """Create a pod (see `pod_samples`) on this site's node, and say as its kubelet that it runs."""
        status = body["status"]
        metadata = {key: value for key, value in body["metadata"].items() if key not in ("uid", "deletionTimestamp")}
        for owner in metadata.get("ownerReferences", ()):
            owner |= {"apiVersion": "batch/v1", "uid": "00000000-0000-4000-8000-000000000000", "name": "owner"}
        # The garbage collector would delete a pod whose owner does not exist.
        metadata.pop("ownerReferences", None)
        spec = {**body["spec"], "nodeName": node or self.node}
        created = self.cluster.create(
            PODS, {**body, "metadata": {**metadata, "namespace": self.namespace}, "spec": spec}
        )
        self.cluster.patch(
            PODS, created["metadata"]["name"], {"status": status}, namespace=self.namespace, subresource="status"
        )
        return created

    def read(self, name: str) -> Body:
        return self.cluster.get(PODS, name, namespace=self.namespace)

    def is_terminating(self, name: str) -> bool:
        return "deletionTimestamp" in self.read(name)["metadata"]

    def end(self, name: str) -> None:
        """What a kubelet does once the containers of a terminating pod are gone."""
        path = PODS.item(name, self.namespace)
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        self.cluster._request("DELETE", path, what=f"END Pod {name}", body=options)

    def allow(self, body: Body) -> None:
        """Create or change a budget (see `pod_samples`), with the status that its controller would give it."""
        metadata = {"name": body["metadata"]["name"], "namespace": self.namespace}
        self.cluster.apply({**body, "metadata": metadata, "status": None}, manager="test")
        made = self.cluster.get(POD_DISRUPTION_BUDGETS, metadata["name"], namespace=self.namespace)
        status = {**body["status"], "observedGeneration": made["metadata"]["generation"], "expectedPods": 2}
        self.cluster.patch(
            POD_DISRUPTION_BUDGETS,
            metadata["name"],
            {"status": status},
            namespace=self.namespace,
            subresource="status",
        )

    def clean(self) -> None:
        for item in self.cluster.list(PODS, namespace=self.namespace).items:
            self.end(item["metadata"]["name"])
        self.cluster.delete(NAMESPACES, self.namespace)
