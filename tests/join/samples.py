"""A server whose boot is ordered, its pool, image, rack and Node, and the request that its agent sends."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api.images.image import Artifact, Image, ImageSpec, ImageStatus
from provisioner.api.machinery.meta import Condition, ObjectMeta, rfc3339
from provisioner.api.nodes.contract import PREPARED_ORDER_ANNOTATION
from provisioner.api.pools.node_pool import KubeletSettings, NodePool, NodePoolSpec, Taint
from provisioner.api.servers.rack import Rack, RackSpec, Subnet
from provisioner.api.servers.server import BMC, BootOrder, JoinStatus, PowerStatus, Server, ServerSpec, ServerStatus
from provisioner.join.admission.admit import Admitted, Decision, JoinFacts, judge_claim, judge_proof
from provisioner.join.admission.request import JoinRequest, parse_join_request
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MAC = "52:54:00:12:34:56"
ADDRESS = "10.80.0.21"
DIGEST = "sha256:" + "9f" * 32
ORDER = "0d5f4a2e-0000-4000-8000-000000000001"
BOOT_ID = "6f1c5d0e-8c55-4b57-9f8f-0d8a5a3f1e11"
OLD_BOOT_ID = "11111111-8c55-4b57-9f8f-0d8a5a3f1e11"
SYSTEM_UUID = "4c4c4544-0042-4410-8056-b4c04f564432"
SERVER_UID = "a0000000-0000-4000-8000-00000000000a"
KEY = "ab" * 32
OTHER_KEY = "cd" * 32


def admit(
    facts: JoinFacts, request: JoinRequest, source_address: str, now: datetime, *, by_dpu: bool = False
) -> Decision:
    """Judge one request, whose proof is among the facts."""
    claimed = judge_claim(facts, request, source_address, now, by_dpu=by_dpu)
    return judge_proof(facts, claimed) if isinstance(claimed, Admitted) else claimed


def ago(seconds: float) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))


def key_digest(key: str) -> str:
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


def order(**changes: Any) -> BootOrder:
    given = {
        "id": ORDER,
        "reason": "FirstBoot",
        "ordered_time": ago(60),
        "attempt": 1,
        "image_ref": "gpu-node-9f9f9f9f9f9f",
        "boot_id_before": OLD_BOOT_ID,
    }
    return BootOrder(**(given | changes))


def status(**changes: Any) -> ServerStatus:
    given: dict[str, Any] = {
        "address": ADDRESS,
        "order": order(),
        "power": PowerStatus(order_id=ORDER, order_time=ago(50), state="On"),
    }
    return ServerStatus(**(given | changes))


def spec(**changes: Any) -> ServerSpec:
    given: dict[str, Any] = {
        "rack_ref": "r01",
        "boot_mac_address": MAC,
        "system_uuid": SYSTEM_UUID,
        "acceptance": "Accepted",
        "node_pool_ref": "gpu",
        "bmc": BMC(address="https://10.90.0.21"),
    }
    return ServerSpec(**(given | changes))


def server(name: str = "r01-u01", *, spec: ServerSpec | None = None, status: ServerStatus | None = None) -> Server:
    return Server(
        metadata=ObjectMeta(name=name, uid=SERVER_UID, resource_version="7", generation=2),
        spec=spec or globals()["spec"](),
        status=status or globals()["status"](),
    )


def fetched(key: str = KEY, **changes: Any) -> JoinStatus:
    """The order's configuration was handed out, to who has `key`."""
    given = {
        "order_id": ORDER,
        "boot_id": BOOT_ID,
        "request_key_sha256": key_digest(key),
        "token_id": "abc123",
        "fetched_time": ago(10),
    }
    return JoinStatus(**(given | changes))


def pool(name: str = "gpu", **changes: Any) -> NodePool:
    given: dict[str, Any] = {
        "image_ref": "gpu-node-9f9f9f9f9f9f",
        "attestation": "Optional",
        "kubelet": KubeletSettings(
            labels={"gpu.example/model": "h200"},
            taints=(Taint(key="gpu.example/reserved", effect="NoSchedule"),),
        ),
    }
    return NodePool(metadata=ObjectMeta(name=name), spec=NodePoolSpec(**(given | changes)))


def image(name: str = "gpu-node-9f9f9f9f9f9f", digest: str = DIGEST) -> Image:
    artifact = Artifact(path="sha256-9f/root.squashfs", sha256=DIGEST, size_bytes=1)
    return Image(
        metadata=ObjectMeta(name=name),
        spec=ImageSpec(
            digest=digest,
            architecture="x86_64",
            distribution="debian-13",
            recipe="gpu-node",
            manifest=artifact,
            kernel=artifact,
            stage1=artifact,
            root=artifact,
            signature="untrusted comment: none\nRWQ=",
        ),
        status=ImageStatus(
            conditions=(_said("Available", "True", "Stored"), _said("Verified", "Unknown", "NoTrustedKeys"))
        ),
    )


def _said(type_: str, status: Any, reason: str) -> Condition:
    return Condition(type=type_, status=status, reason=reason, message="", last_transition_time=ago(3600))


def rack(name: str = "r01") -> Rack:
    return Rack(
        metadata=ObjectMeta(name=name),
        spec=RackSpec(failure_domain="hall-a", subnets=(Subnet(name="boot", cidr="10.80.0.0/24"),)),
    )


def node(name: str = "r01-u01", *, uid: str | None = SERVER_UID, prepared: str | None = ORDER) -> dict[str, Any]:
    annotations = {SERVER_UID_ANNOTATION: uid, PREPARED_ORDER_ANNOTATION: prepared}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": {key: value for key, value in annotations.items() if value}},
        "spec": {},
    }


def body(**changes: Any) -> bytes:
    """The JSON of a join request; a field set to None is left out."""
    given = {
        "macAddress": MAC,
        "systemUUID": SYSTEM_UUID,
        "bootID": BOOT_ID,
        "imageDigest": DIGEST,
        "requestKey": KEY,
        "evidence": {"type": "None"},
    }
    return json.dumps({key: value for key, value in (given | changes).items() if value is not None}).encode()


def request(**changes: Any) -> JoinRequest:
    return parse_join_request(body(**changes))


def with_spec(of: Server, **changes: Any) -> Server:
    return replace(of, spec=replace(of.spec, **changes))


def with_status(of: Server, **changes: Any) -> Server:
    return replace(of, status=replace(of.status, **changes))
