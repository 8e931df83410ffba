"""A booted server and everything that is looked at, all of it well; each test spoils what it is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api import NodePool, Server
from provisioner.api.machinery.codec import from_json, to_json
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION, PREPARED_ORDER_ANNOTATION, VERIFICATION_TAINT
from provisioner.api.nodes.facts import (
    DiskFacts,
    GpuDriverFacts,
    GpuFacts,
    InfinibandPortFacts,
    NicFacts,
    NodeFacts,
    PciFacts,
)
from provisioner.api.pools.pool_settings import (
    ExpectedGpus,
    ExpectedInfiniband,
    ExpectedInventory,
    JobCheck,
    VerificationSettings,
)
from provisioner.api.servers.server import BootOrder, Interface, JoinStatus, ServerStatus
from provisioner.health.decision import HealthDecision
from provisioner.health.situation import CheckInputs
from provisioner.rules.nodes import NodeView, read_node
from tests.boot.objects import DIGEST, image, pool, server

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
BOOT = "11111111-1111-4111-8111-111111111111"
OTHER_BOOT = "22222222-2222-4222-8222-222222222222"
ORDER = "order-1"
IMAGE = "gpu-node-abababababab"
MAC = "52:54:00:12:34:56"
FABRIC_MAC = "52:54:00:aa:00:01"
MIB = 1024 * 1024

__all__ = ["DIGEST"]


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def gpu(number: int, **fields: Any) -> PciFacts:
    good = PciFacts(
        address=f"0000:{number:02x}:00.0", vendor_id="10de", device_id="2330", class_id="0302", driver="nvidia"
    )
    return replace(good, **fields)


def gpu_by_nvml(number: int, **fields: Any) -> GpuFacts:
    good = GpuFacts(uuid=f"GPU-{number}", pci_address=f"0000:{number:02x}:00.0", ecc_enabled=True, ecc_uncorrected=0)
    return replace(good, **fields)


def port(number: int, **fields: Any) -> InfinibandPortFacts:
    good = InfinibandPortFacts(device=f"mlx5_{number}", port=1, state="ACTIVE", rate_gbps=400, link_layer="InfiniBand")
    return replace(good, **fields)


def nic(mac: str, **fields: Any) -> NicFacts:
    return replace(NicFacts(name="eth0", mac_address=mac, pci_address="0000:01:00.0", driver="mlx5_core"), **fields)


def good_facts(**fields: Any) -> NodeFacts:
    good = NodeFacts(
        format=1,
        boot_id=BOOT,
        image_digest=DIGEST,
        time=rfc3339(NOON),
        vendor="Maker",
        product="Model 1",
        cpus=128,
        memory_bytes=2048 * MIB,
        nics=(nic(MAC), nic(FABRIC_MAC)),
        disks=(DiskFacts(name="nvme0n1", size_bytes=10**12), DiskFacts(name="nvme1n1", size_bytes=10**12)),
        pci=(gpu(1), gpu(2)),
        gpu_driver=GpuDriverFacts(state="Ready", count=2, driver_version="550.163.01"),
        gpus=(gpu_by_nvml(1), gpu_by_nvml(2)),
        infiniband_ports=(port(0), port(1)),
        clock_synchronized=True,
        root_free_bytes=512 * MIB,
        kubelet_active=True,
        runtime_active=True,
    )
    return replace(good, **fields)


EXPECTED = ExpectedInventory(
    cpus=128,
    memory_mib=2000,
    disks=2,
    nics=2,
    gpus=ExpectedGpus(count=2, device_id="2330"),
    infiniband=ExpectedInfiniband(ports=2, rate_gbps=400),
)


def job_check(name: str = "gpu-burn", **fields: Any) -> JobCheck:
    template = {"spec": {"template": {"spec": {"containers": [{"name": "check", "image": "registry.example/check"}]}}}}
    return replace(JobCheck(name=name, template=template, timeout_seconds=100), **fields)


def strict_pool(*checks: JobCheck, **settings: Any) -> NodePool:
    return pool(verification=VerificationSettings(**{"expected": EXPECTED, "checks": checks, **settings}))


def node_condition(
    type_: str, status: str = "True", *, message: str = "", at: datetime | None = NOON
) -> dict[str, Any]:
    body: dict[str, Any] = {"type": type_, "status": status, "reason": "Test", "message": message}
    return body | ({"lastTransitionTime": rfc3339(at)} if at is not None else {})


def node_body(
    facts: NodeFacts | str | None = None,
    *conditions: Mapping[str, Any],
    ready: bool = True,
    boot_id: str = BOOT,
    order: str | None = ORDER,
    taints: tuple[Mapping[str, Any], ...] = ({"key": VERIFICATION_TAINT, "effect": "NoExecute"},),
    name: str = "r01-u01",
) -> dict[str, Any]:
    """A Node as the API server gives it. facts: those of a good machine if absent, a string as it stands."""
    facts = good_facts() if facts is None else facts
    text = facts if isinstance(facts, str) else json.dumps(to_json(facts))
    annotations = {NODE_FACTS_ANNOTATION: text} if text else {}
    if order is not None:
        annotations[PREPARED_ORDER_ANNOTATION] = order
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": "node-uid", "annotations": annotations},
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {
            "nodeInfo": {"bootID": boot_id, "containerRuntimeVersion": "containerd://2.1"},
            "conditions": [node_condition("Ready", "True" if ready else "False", message="kubelet says"), *conditions],
        },
    }


def node(*arguments: Any, **fields: Any) -> NodeView:
    seen = read_node(node_body(*arguments, **fields))
    assert seen is not None
    return seen


def booted(**status: Any) -> Server:
    """A server whose ordered boot has joined."""
    wanted = ServerStatus(
        order=BootOrder(id=ORDER, reason="FirstBoot", ordered_time=rfc3339(NOON), attempt=1, image_ref=IMAGE),
        join=JoinStatus(order_id=ORDER, boot_id=BOOT, fetched_time=rfc3339_micro(NOON)),
        image_ref=IMAGE,
        image_digest=DIGEST,
    )
    return server(status=replace(wanted, **status), interfaces=(Interface(name="ib0", mac_address=FABRIC_MAC),))


def situation(**parts: Any) -> CheckInputs:
    good: dict[str, Any] = {
        "server": booted(),
        "pool": strict_pool(),
        "image": image(),
        "node": node(),
        "clock_skew_seconds": 0.2,
    }
    return CheckInputs(**{**good, **parts})


def carried_on(before: CheckInputs, decision: HealthDecision, **parts: Any) -> CheckInputs:
    """The situation after `decision` was written."""
    body = to_json(before.server) | {"status": to_json(before.server.status) | decision.status}
    others = [c for c in to_json(before.server.status).get("conditions", ()) if c["type"] != "Verified"]
    body["status"]["conditions"] = [*others, *decision.status["conditions"]]
    for owned in ("verification", "lifecycle"):
        if owned not in decision.status:
            body["status"].pop(owned, None)
    return replace(before, server=from_json(Server, body), **parts)
