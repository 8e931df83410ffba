"""Two tenants, their VPCs and servers, as objects; and a network of two partitions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

from provisioner.api import VPC, InfiniBandFabric, InfiniBandNetwork, NetworkClaim, NetworkPool, Server, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.network.infiniband_network import Partition
from provisioner.api.network.network_claim import pkey_claim

NOON: Final = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
API: Final = "provisioner.dev/v1alpha1"


def guid(number: int) -> str:
    return f"0x{0x506B4B0300A1B200 + number:016x}"


def _object(kind: str, name: str, spec: dict[str, Any], namespace: str | None = None, **metadata: Any) -> Any:
    given = {"name": name, "uid": f"uid-{namespace or ''}-{name}", "generation": 1, **metadata}
    if namespace is not None:
        given["namespace"] = namespace
    return {"apiVersion": API, "kind": kind, "metadata": given, "spec": spec}


def vpc(namespace: str, name: str = "main", *, partition: bool = True, ipoib: bool = False, **metadata: Any) -> VPC:
    spec = {"cidrs": ["10.1.0.0/16"], "infiniband": {"partition": partition, "ipOverIb": ipoib}}
    return decode(VPC, _object("VPC", name, spec, namespace, **metadata))


def attachment(
    namespace: str, server_name: str, vpc_name: str = "main", *, quarantined: bool = False, **metadata: Any
) -> VPCAttachment:
    spec = {"vpcRef": vpc_name, "serverRef": server_name, "quarantined": quarantined}
    return decode(VPCAttachment, _object("VPCAttachment", f"{server_name}-{vpc_name}", spec, namespace, **metadata))


def server(name: str, tenant: str | None, guids: Iterable[str], *, fabric: str = "default", **spec: Any) -> Server:
    given = {
        "rackRef": "r01",
        "bootMACAddress": "52:54:00:12:34:56",
        "acceptance": "Accepted",
        "infinibandPorts": [{"guid": each, "fabricRef": fabric} for each in guids],
        **({"tenant": tenant} if tenant else {}),
        **spec,
    }
    return decode(Server, _object("Server", name, given))


def claim(pkey: int, holder: VPC, *, released: str | None = None) -> NetworkClaim:
    whose = {
        "kind": "VPC",
        "namespace": holder.metadata.namespace,
        "name": holder.name,
        "uid": holder.metadata.uid,
    }
    body = _object("NetworkClaim", pkey_claim(pkey), {"type": "PKey", "value": f"0x{pkey:04x}", "holder": whose})
    return decode(NetworkClaim, body | ({"status": {"releasedTime": released}} if released else {}))


def fabric(name: str = "default", **spec: Any) -> InfiniBandFabric:
    return decode(InfiniBandFabric, _object("InfiniBandFabric", name, {"manager": "OpenSM", **spec}))


def pool(*ranges: tuple[int, int]) -> NetworkPool:
    spec = {
        "vniRanges": [{"first": 10001, "last": 10010}],
        "pkeyRanges": [{"first": first, "last": last} for first, last in ranges],
    }
    return decode(NetworkPool, _object("NetworkPool", "default", spec))


def partition(pkey: int, *guids: str, vpc_name: str = "blue/main", ipoib: bool = False) -> Partition:
    return Partition(pkey=pkey, vpc=vpc_name, ip_over_ib=ipoib, guids=tuple(sorted(guids)))


def network(
    *partitions: Partition, name: str = "default", status: Any = None, generation: int = 1, **spec: Any
) -> InfiniBandNetwork:
    given = {
        "manager": "OpenSM",
        "pkeyRanges": [{"first": 0x100, "last": 0x1FF}],
        "partitions": [
            {"pkey": each.pkey, "vpc": each.vpc, "ipOverIb": each.ip_over_ib, "guids": list(each.guids)}
            for each in partitions
        ],
        **spec,
    }
    body = _object("InfiniBandNetwork", name, given, generation=generation)
    return decode(InfiniBandNetwork, body | ({"status": status} if status else {}))
