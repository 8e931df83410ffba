"""Typed objects for the tests of the boot package: a valid one, changed by keyword."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from provisioner.api import Condition, Image, Maintenance, NodePool, ObjectMeta, Rack, Server
from provisioner.api.images.image import Artifact, ImageSpec, NamedArtifact
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.api.nodes.maintenance import MaintenanceSpec, MaintenanceStatus, RebootAttempt
from provisioner.api.pools.node_pool import NodePoolSpec
from provisioner.api.servers.rack import RackSpec, Subnet
from provisioner.api.servers.server import BMC, ServerSpec, ServerStatus
from provisioner.boot.script.kernel_arguments import BootUrls

DIGEST = "sha256:" + "ab" * 32
STORE = "sha256-" + "ab" * 32
URLS = BootUrls(boot="http://10.80.0.1", join="https://10.80.0.1:8443")
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def at(seconds: float) -> str:
    """Noon and so many seconds, as the API writes it."""
    return rfc3339_micro(NOON + timedelta(seconds=seconds))


def condition(type_: str, status: Any, reason: str = "Because", message: str = "") -> Condition:
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=at(0))


JUDGED = condition("Verified", "Unknown", "NoTrustedKeys")
"""What the controller says of each Image of a site that names no keys."""


def rack(**spec: Any) -> Rack:
    subnet = Subnet(
        name="boot",
        cidr="10.80.0.0/24",
        gateway="10.80.0.1",
        dns_servers=("10.80.0.1", "10.80.0.2"),
        ntp_servers=("10.80.0.1",),
        mtu=9000,
    )
    return Rack(metadata=ObjectMeta(name="r01"), spec=replace(RackSpec(subnets=(subnet,)), **spec))


def pool(name: str = "gpu", **spec: Any) -> NodePool:
    wanted: dict[str, Any] = {"image_ref": "gpu-node-abababababab", "attestation": "Optional", **spec}
    return NodePool(metadata=ObjectMeta(name=name), spec=NodePoolSpec(**wanted))


def image(name: str = "gpu-node-abababababab", *, available: Any = "True", **spec: Any) -> Image:
    def artifact(file: str) -> Artifact:
        return Artifact(path=f"{STORE}/{file}", sha256=DIGEST, size_bytes=4)

    body = Image(
        metadata=ObjectMeta(name=name),
        spec=ImageSpec(
            digest=DIGEST,
            architecture="x86_64",
            distribution="debian-13",
            recipe="gpu-node",
            manifest=artifact("manifest"),
            kernel=artifact("vmlinuz"),
            stage1=artifact("stage1.img"),
            root=artifact("root.squashfs"),
            kernel_arguments=("quiet",),
            signature="c2ln",
        ),
    )
    body = replace(body, spec=replace(body.spec, **spec))
    if available is None:
        return body
    found = condition("Available", available, message="complete on boot1" if available == "True" else "root is missing")
    return replace(body, status=replace(body.status, conditions=(found, JUDGED)))


def layered_image(*layers: str, **spec: Any) -> Image:
    """An image in layers: its parts lie by their own digests, which here have the part's first letter alone."""

    def part(name: str) -> dict[str, Any]:
        digest = f"{ord(name[0]):02x}" * 32
        return {"path": f"parts/sha256-{digest}", "sha256": f"sha256:{digest}", "size_bytes": 4}

    return image(
        kernel=Artifact(**part("kernel")),
        stage1=Artifact(**part("stage1")),
        root=None,
        layers=tuple(NamedArtifact(name=name, **part(name)) for name in layers),
        documents=(NamedArtifact(name="readme", **part("readme")),),
        **{"available": None, **spec},
    )


def server(name: str = "r01-u01", *, status: ServerStatus | None = None, **spec: Any) -> Server:
    wanted: dict[str, Any] = {
        "rack_ref": "r01",
        "boot_mac_address": "52:54:00:12:34:56",
        "node_pool_ref": "gpu",
        "acceptance": "Accepted",
        "bmc": BMC(address="https://10.90.0.11"),
        **spec,
    }
    return Server(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}"),
        spec=ServerSpec(**wanted),
        status=status if status is not None else ServerStatus(address="10.80.0.21", subnet_name="boot"),
    )


def attempt(method: Any = "Kexec", *, id: str = "try-1", **changes: Any) -> RebootAttempt:  # noqa: A002
    """A try at a reboot method, begun an hour after noon."""
    given: dict[str, Any] = {
        "image_ref": "gpu-node-abababababab",
        "image_digest": DIGEST,
        "started_time": at(3600),
        "deadline_time": at(3780),
        **changes,
    }
    return RebootAttempt(id=id, method=method, **given)


def maintenance(
    name: str = "r01-u01-1", *, server: str = "r01-u01", phase: Any = "Rebooting", reboot: RebootAttempt | None = None
) -> Maintenance:
    return Maintenance(
        metadata=ObjectMeta(name=name, creation_timestamp=at(3000)),
        spec=MaintenanceSpec(server_ref=server),
        status=MaintenanceStatus(phase=phase, reboot=reboot),
    )
