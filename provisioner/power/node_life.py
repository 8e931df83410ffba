"""Whether a Node lives on a server that is about to be reset: its status and its Lease, read past every cache."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.errors import NotFound
from provisioner.api.meta import parse_time
from provisioner.api.node_contract import read_boot_id
from provisioner.api.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES, ResourceType

LEASE_FRESH: Final = timedelta(seconds=25)
"""A kubelet renews its Lease every 10 seconds; one renewed within this time is alive, whatever else is said."""


def look_for_life(cluster: Cluster, server: Server, now: datetime) -> str | None:
    """The sign of life of the server's Node, in words; None if there is none. Raises: Retryable."""
    node = _find(cluster, NODES, server.name)
    if node is None:
        return None
    join = server.status.join
    lease = _find(cluster, LEASES, server.name, NODE_LEASES)
    return sign_of_life(node, lease, join.boot_id if join is not None else None, now)


def sign_of_life(
    node: Mapping[str, Any], lease: Mapping[str, Any] | None, joined_boot_id: str | None, now: datetime
) -> str | None:
    """What says that the Node lives; None if nothing does. The words do not change while it goes on living.

    A Node that no kubelet reported to was made for the boot to come: a Lease beside it is of the Node that a person
    deleted before, which is how a person asks for a boot.
    """
    status = node.get("status") or {}
    boot_id = read_boot_id(node)
    said = {c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"}
    if "True" in said and boot_id and boot_id == (joined_boot_id or "").lower():
        return f"it is Ready in the boot that joined ({boot_id})"
    if not boot_id and not said & {"True", "False"}:
        return None
    renewed = ((lease or {}).get("spec") or {}).get("renewTime")
    if renewed and now - parse_time(renewed) < LEASE_FRESH:
        return f"its kubelet renewed its Lease less than {int(LEASE_FRESH.total_seconds())} s ago"
    return None


def _find(cluster: Cluster, type_: ResourceType, name: str, namespace: str | None = None) -> Mapping[str, Any] | None:
    try:
        return cluster.get(type_, name, namespace=namespace)
    except NotFound:
        return None
