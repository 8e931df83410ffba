"""A Node on the server of a site, as its kubelet reports it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cluster.resources import LEASES, NODES
from tests.power.power_site import Site

LEASE_NAMESPACE = "kube-node-lease"


@contextmanager
def node_on(site: Site) -> Iterator[None]:
    """A Node that a kubelet reported to, and that is not alive."""
    cluster = site.cluster
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}, manager="test")
    cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": site.name}}, manager="test")
    report(site, ready="Unknown", boot_id="b1")
    try:
        yield
    finally:
        site.stop()
        cluster.delete(LEASES, site.name, namespace=LEASE_NAMESPACE)
        cluster.delete(NODES, site.name)


def report(site: Site, *, ready: str, boot_id: str) -> None:
    """The kubelet's report."""
    info = dict.fromkeys(
        (
            "machineID",
            "systemUUID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ),
        "",
    )
    status = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": info | {"bootID": boot_id}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": site.name}, "status": status}
    site.cluster.apply(body, manager="test", subresource="status")


def renew_lease(site: Site, moment: datetime) -> None:
    """The kubelet's sign of life."""
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": site.name, "namespace": LEASE_NAMESPACE},
        "spec": {"renewTime": rfc3339_micro(moment)},
    }
    site.cluster.apply(body, manager="test")
