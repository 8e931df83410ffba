"""Objects that are as large as the API server takes them, in the fields that copies could keep: by the plural of their
kind. And, as a program, the controllers' copies of all kinds, which say how much memory they took."""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time
from functools import cache
from pathlib import Path
from typing import Any

BYTES = 1_200_000
COUNT = 25
SECONDS = 300


def filled(count: int = 3000, key: str = "example.com/{0}") -> dict[str, str]:
    """Labels or annotations."""
    return {key.format(number): str(number).zfill(60) for number in range(count)}


def large(letters: int = BYTES // 2) -> str:
    return "x" * letters


def pod(labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    marks = {"provisioner.dev/do-not-disrupt": large(200_000), "kueue.x-k8s.io/workload": large(20_000)}
    owner = {"apiVersion": "v1", "kind": large(100_000) + "Job", "name": "o", "uid": "u", "controller": True}
    limits = {f"example{number}.com/gpu": "1" for number in range(500)}
    waiting = {"waiting": {"reason": "A", "message": large(100_000)}, "terminated": {"message": large(100_000)}}
    condition = {"type": "PodScheduled", "status": "False", "message": large(100_000)}
    return {
        "metadata": {"labels": filled() | labels, "annotations": filled(500) | marks, "ownerReferences": [owner] * 3},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}] * 5, "nodeName": "n", **spec},
        "status": {
            "phase": "Running",
            "message": large(100_000),
            "conditions": [condition, {**condition, "type": "Ready"}],
            "containerStatuses": [{"name": "c", "state": waiting}],
        },
    }


def job() -> dict[str, Any]:
    condition = {"type": "Failed", "status": "True", "reason": "A", "message": large(200_000)}
    said = {"provisioner.dev/boot-id": large(200_000), "provisioner.dev/attempt": "1"}
    labels = {"provisioner.dev/check": "c", "provisioner.dev/server": "s"}
    return {
        "metadata": {"labels": filled() | labels, "annotations": filled(1000) | said},
        "spec": {"template": {"spec": {"containers": [{"name": large()}]}}},
        "status": {"conditions": [condition]},
    }


def request() -> dict[str, Any]:
    pem = base64.b64encode(large(BYTES // 2).encode()).decode()
    return {
        "metadata": {"annotations": filled(1000)},
        "spec": {"request": pem, "username": "system:node:n", "groups": ["system:nodes"], "usages": [],
                 "extra": {"a": [large(100_000)]}},
    }  # fmt: skip


def lease() -> dict[str, Any]:
    fields = [{"manager": f"m{number}", "time": "2026-01-01T00:00:00Z", "fieldsV1": filled(50)} for number in range(50)]
    return {
        "metadata": {"annotations": filled(), "managedFields": fields},
        "spec": {"renewTime": "2026-01-01T00:00:00.000000Z", "holderIdentity": large()},
    }


def node() -> dict[str, Any]:
    """As far as the policies of node_limits.yaml allow: 128 KiB of annotations, 1 MiB in all."""
    images = [{"names": [large(2000)], "sizeBytes": 1} for _ in range(300)]
    return {
        "metadata": {"labels": filled(1000), "annotations": filled(1000)},
        "spec": {},
        "status": {"images": images, "config": {"a": large(200_000)}, "conditions": []},
    }


def group() -> dict[str, Any]:
    """As large as its schema allows, beside what hangs on it."""

    def rule(number: int) -> dict[str, Any]:
        cidrs = [f"fd00:1000:2000:3000:4000:5000:{number:04x}:{each:04x}/128" for each in range(32)]
        ports = [f"{30000 + number}-{40000 + each}" for each in range(32)]
        return {"direction": "Ingress", "action": "Allow", "protocol": "TCP", "ports": ports, "cidrs": cidrs}

    return {
        "metadata": {"namespace": "n", "annotations": filled(), "labels": filled()},
        "spec": {"rules": [rule(number) for number in range(128)], "stateful": True},
    }


def vpc() -> dict[str, Any]:
    return {"metadata": {"annotations": filled(), "labels": filled(6000)}, "spec": {"cidrs": ["10.0.0.0/24"]}}


def attachment() -> dict[str, Any]:
    spec = {"vpcRef": "v", "serverRef": "s", "function": "pf0"}
    return {"metadata": {"annotations": filled(), "labels": filled(6000)}, "spec": spec}


MADE = {
    "pods": lambda: pod({"provisioner.dev/server": "s"}),
    "jobs": job,
    "certificatesigningrequests": request,
    "leases": lease,
    "nodes": node,
    "vpcs": vpc,
    "vpcattachments": attachment,
    "securitygroups": group,
}
"""Those that a tenant or a node can write."""
NAMESPACED = {"pods", "jobs", "leases", "vpcs", "vpcattachments", "securitygroups"}
WRITTEN_BY_OTHERS = {
    *("servers", "nodepools", "racks", "images", "maintenances", "addressblocks", "roles", "rolebindings"),
    *("networkpools", "networkclaims", "dpunetworks", "clusterroles", "clusterrolebindings"),
    *("infinibandfabrics", "infinibandnetworks"),
}
"""By administrators and by our accounts alone; of a DPUNetwork its DPU writes the status, which has a schema."""


@cache
def _body(plural: str) -> tuple[str, str]:
    """JSON of an object before and after its name and version."""
    body = {"apiVersion": "v1", "kind": "Any", **MADE[plural]()}
    named = {"name": "@@", "resourceVersion": "@@", **({"namespace": "n"} if plural in NAMESPACED else {})}
    body["metadata"] = named | body["metadata"] | named
    head, tail = json.dumps(body).split('"name": "@@", "resourceVersion": "@@"')
    return head, tail


def written(plural: str, number: int, version: int) -> bytes:
    """One of `COUNT` objects of a kind, as JSON."""
    head, tail = _body(plural)
    return f'{head}"name": "o-{number}", "uid": "u-{number}", "resourceVersion": "{version}"{tail}'.encode()


def peak_kib() -> int:
    """The most memory that this program had. `ru_maxrss` will not do: it begins with that of who started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]


def follow(kubeconfig: Path, *, trimmed: bool) -> dict[str, Any]:
    """Have all copies follow an API server that lists such objects and then changes each of them. Without `trimmed`
    they keep each object as it is."""
    from provisioner.cli.service.informers import SharedInformers
    from provisioner.cluster.client import Cluster

    informers = SharedInformers(Cluster.connect(kubeconfig))
    if not trimmed:
        make = informers.make
        informers.make = lambda type_, **more: make(type_, **more | {"trim": None})  # type: ignore[method-assign]
    for name, value in vars(SharedInformers).items():
        if hasattr(value, "attrname"):
            getattr(informers, name)
    before = peak_kib()
    informers.start(threading.Event())
    deadline = time.monotonic() + SECONDS
    hostile = [each for each in informers.made if each._type.plural in MADE]
    while not informers.wait_for_sync(1) or not all(_has_changes(each.items()) for each in hostile):
        assert time.monotonic() < deadline, {each.kind: len(each) for each in informers.made}
        time.sleep(0.1)
    after = peak_kib()
    return {
        "grown_mib": (after - before) / 1024,
        "kinds": sorted({each._type.plural for each in informers.made}),
        "kept_bytes": {each.kind: len(json.dumps(each.items())) // COUNT for each in hostile},
    }


def _has_changes(items: list[dict[str, Any]]) -> bool:
    return len(items) == COUNT and all(int(item["metadata"]["resourceVersion"]) > COUNT for item in items)


if __name__ == "__main__":
    print(json.dumps(follow(Path(sys.argv[1]), trimmed=sys.argv[2:] != ["whole"])))
