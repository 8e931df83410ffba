"""Good objects, as small as they may be, for tests to change."""

from __future__ import annotations

import copy
from typing import Any

API = "provisioner.dev/v1alpha1"
DIGEST = "sha256:" + "9f" * 32


def _object(kind: str, spec: dict[str, Any], changes: dict[str, Any], name: str) -> dict[str, Any]:
    merged = copy.deepcopy(spec)
    for key, value in changes.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": merged}


def subnet(**changes: Any) -> dict[str, Any]:
    return {"name": "boot", "cidr": "10.80.0.0/24", "gateway": "10.80.0.1"} | changes


def rack(name: str = "r01", **changes: Any) -> dict[str, Any]:
    return _object("Rack", {"subnets": [subnet()]}, changes, name)


def server(name: str = "r01-u01", **changes: Any) -> dict[str, Any]:
    return _object("Server", {"rackRef": "r01", "bootMACAddress": "52:54:00:12:34:56"}, changes, name)


def bmc(**changes: Any) -> dict[str, Any]:
    return {"address": "https://10.90.0.11", **changes}


def ipmi(**changes: Any) -> dict[str, Any]:
    return {"address": "ipmi://10.90.0.11", "protocol": "IPMI", **changes}


def dpu(name: str = "r01-u01-dpu", card: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A Server that is a DPU. card: changes of its spec.dpu."""
    given = {key: value for key, value in ({"hostRef": "r01-u01"} | (card or {})).items() if value is not None}
    spec = {"rackRef": "r01", "architecture": "arm64", "bootMACAddress": "52:54:00:12:34:57", "dpu": given}
    return _object("Server", spec, changes, name)


def address_block(name: str = "10.80.0.0", **changes: Any) -> dict[str, Any]:
    return _object("AddressBlock", {"revision": 1, "claims": {"10.80.0.17": "r01-u01"}}, changes, name)


def _in_namespace(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["namespace"] = "default"
    return body


def vpc(name: str = "main", **changes: Any) -> dict[str, Any]:
    return _in_namespace(_object("VPC", {"cidrs": ["10.1.0.0/16"]}, changes, name))


def vpc_attachment(name: str = "r01-u01", **changes: Any) -> dict[str, Any]:
    return _in_namespace(_object("VPCAttachment", {"vpcRef": "main", "serverRef": "r01-u01"}, changes, name))


def security_group(name: str = "ssh", **changes: Any) -> dict[str, Any]:
    rules = [{"direction": "Ingress", "protocol": "TCP", "ports": ["22"]}]
    return _in_namespace(_object("SecurityGroup", {"rules": rules}, changes, name))


def network_pool(name: str = "default", **changes: Any) -> dict[str, Any]:
    return _object("NetworkPool", {"vniRanges": [{"first": 10000, "last": 19999}]}, changes, name)


def network_claim(name: str = "vni-10001", **changes: Any) -> dict[str, Any]:
    holder = {"kind": "VPC", "namespace": "blue", "name": "main", "uid": "6f1c"}
    return _object("NetworkClaim", {"type": "VNI", "value": "10001", "holder": holder}, changes, name)


def dpu_network(name: str = "r01-u01-dpu", **changes: Any) -> dict[str, Any]:
    return _object("DPUNetwork", {"vtepAddress": "10.100.0.11"}, changes, name)


def artifact(name: str) -> dict[str, Any]:
    return {"path": f"{DIGEST.replace(':', '-')}/{name}", "sha256": DIGEST, "sizeBytes": 1024}


def image(name: str = "gpu-node-9f9f9f9f9f9f", **changes: Any) -> dict[str, Any]:
    spec = {
        "digest": DIGEST,
        "architecture": "x86_64",
        "distribution": "debian-13",
        "recipe": "gpu-node",
        "manifest": artifact("manifest"),
        "kernel": part("33"),
        "stage1": part("44"),
        "layers": [layer("base", "55"), layer("site", "66")],
        "signature": "untrusted comment: signature\nRWQ=\n",
    }
    return _object("Image", spec, changes, name)


IMAGE_JUDGED = {
    "type": "Verified",
    "status": "Unknown",
    "reason": "NoTrustedKeys",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}
"""What the controller says of each Image of a site that names no keys."""


def part(byte: str) -> dict[str, Any]:
    """By its own digest, which has that byte alone."""
    return {"path": f"parts/sha256-{byte * 32}", "sha256": f"sha256:{byte * 32}", "sizeBytes": 1}


def layer(name: str, byte: str) -> dict[str, Any]:
    return {"name": name, **part(byte)}


def image_of_format_1(name: str = "gpu-node-9f9f9f9f9f9f", **changes: Any) -> dict[str, Any]:
    """As a release before layers published it."""
    files = {"kernel": "vmlinuz", "stage1": "stage1.img", "root": "root.squashfs"}
    old = {key: artifact(file) for key, file in files.items()}
    return image(name, **{"layers": None, **old, **changes})


def node_pool(name: str = "gpu", **changes: Any) -> dict[str, Any]:
    return _object("NodePool", {"imageRef": "gpu-node-9f9f9f9f9f9f"}, changes, name)


def requestor(**changes: Any) -> dict[str, Any]:
    return {"name": "user-alice", "action": "Reboot", **changes}


def maintenance(name: str = "r01-u01-1", **changes: Any) -> dict[str, Any]:
    return _object("Maintenance", {"serverRef": "r01-u01", "requestors": [requestor()]}, changes, name)
