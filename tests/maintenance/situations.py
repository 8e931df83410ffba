"""Facts for the tests of pure decisions: an idle server that runs boot-1 and shall be rebooted; changed by keyword."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from provisioner.api import NodePool, Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    MAINTENANCE_TAINT,
    NODE_FACTS_ANNOTATION,
    PREPARED_ORDER_ANNOTATION,
)
from provisioner.api.nodes.facts import BootIntent, BootReport, NodeFacts
from provisioner.api.nodes.maintenance import Blocker, RebootAttempt, Requestor
from provisioner.api.pools.pool_settings import MaintenanceSettings
from provisioner.api.servers.server import BootOrder, JoinStatus, Verification
from provisioner.jobs.model.work import Work
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.rules.nodes import NodeView, read_node
from provisioner.rules.requests import merge
from tests.boot import objects
from tests.maintenance.samples import NOON, maintenance, requestor

BOOT, NEW_BOOT = "boot-1", "boot-2"
NODE = "r01-u01"
DIGEST, OTHER_DIGEST = objects.DIGEST, "sha256:" + "cd" * 32


def later(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def node(
    boot: str | None = BOOT,
    *,
    ready: str = "True",
    digest: str | None = DIGEST,
    kexec: bool = True,
    conditions: tuple[dict[str, Any], ...] = (),
    intent: BootIntent | None = None,
    report: BootReport | None = None,
    prepared: str | None = None,
    taint: str | None = None,
    effect: str = "NoSchedule",
) -> NodeView:
    """`digest` None: its agent says nothing."""
    annotations: dict[str, str] = {}
    if digest is not None and boot is not None:
        facts = NodeFacts(
            format=1,
            boot_id=boot,
            image_digest=digest,
            time=rfc3339(NOON),
            product="model",
            cpus=2,
            memory_bytes=1,
            kexec_supported=kexec,
        )
        annotations[NODE_FACTS_ANNOTATION] = json.dumps(to_json(facts))
    for key, said in ((BOOT_INTENT_ANNOTATION, intent), (BOOT_REPORT_ANNOTATION, report)):
        if said is not None:
            annotations[key] = json.dumps(to_json(said))
    if prepared is not None:
        annotations[PREPARED_ORDER_ANNOTATION] = prepared
    said_of = [{"type": "Ready", "status": ready}, *conditions]
    taints = [{"key": MAINTENANCE_TAINT, "value": taint, "effect": effect}] if taint else []
    view = read_node(
        {
            "metadata": {"name": NODE, "uid": "uid-node", "resourceVersion": "1", "annotations": annotations},
            "spec": {"taints": taints},
            "status": {"nodeInfo": {"bootID": boot} if boot else {}, "conditions": said_of},
        }
    )
    assert view is not None
    return view


def pool(**settings: Any) -> NodePool:
    return objects.pool(maintenance=MaintenanceSettings(**{"kexec_models": ("*",), **settings}))


def server(
    *, order: str = "o1", request: str | None = None, joined: str | None = BOOT, verified: str = "True", **status: Any
) -> Server:
    """`joined`: the boot that joined in the order, and whose checks came out as `verified` says."""
    body = objects.server(NODE)
    given: dict[str, Any] = {
        "order": BootOrder(
            id=order, reason="FirstBoot", ordered_time=rfc3339_micro(NOON), attempt=1, attempt_id=request
        ),
        "join": JoinStatus(order_id=order, boot_id=joined, fetched_time=rfc3339_micro(NOON)) if joined else None,
        "verification": Verification(boot_id=joined, attempt=1, started_time=rfc3339(NOON)) if joined else None,
        "conditions": (objects.condition("Verified", verified, message="as the checks say"),),
        **status,
    }
    return replace(body, status=replace(body.status, **given))


def attempt(method: Any = "Kexec", *, number: int = 1, began: float = 0, **changes: Any) -> RebootAttempt:
    given: dict[str, Any] = {
        "image_ref": "gpu-node-abababababab",
        "image_digest": DIGEST,
        "started_time": rfc3339_micro(later(began)),
        "deadline_time": rfc3339_micro(later(began + 180)),
        **changes,
    }
    return RebootAttempt(id=f"try-{number}", method=method, **given)


def blocker(kind: Any, name: str, *, since: float = 0) -> Blocker:
    return Blocker(kind=kind, name=name, message="is waited for", since_time=rfc3339(later(since)))


def facts(*requestors: Requestor, status: dict[str, Any] | None = None, **changes: Any) -> MaintenanceFacts:
    """`status`: of the Maintenance."""
    m = maintenance(1, *(requestors or (requestor(requested_time=rfc3339(NOON)),)), **(status or {}))
    given: dict[str, Any] = {
        "server_name": NODE,
        "maintenance": m,
        "wanted": merge(m),
        "server": server(),
        "node": node(),
        "pool": pool(),
        "image": objects.image(),
        "work": Work(),
        **changes,
    }
    return MaintenanceFacts(**{"next_pool": given["pool"], **given})
