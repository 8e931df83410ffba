"""Everything that is checked without running anything on the node. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provisioner.api import Image, NodePool, Server
from provisioner.health.checked_node import CheckedNode
from provisioner.health.checks.credential import check_credential
from provisioner.health.checks.facts import read_facts
from provisioner.health.checks.finding import Finding
from provisioner.health.checks.gpu.look import check_gpus
from provisioner.health.checks.hardware import check_hardware
from provisioner.health.checks.system import check_system

ALL_CHECKS: Final = (
    "Facts",
    "ImageDigest",
    "Credential",
    "Clock",
    "Root",
    "Kubelet",
    "Runtime",
    "Pressure",
    "Processors",
    "Memory",
    "Interfaces",
    "Disks",
    "GPUs",
    "InfiniBand",
    "GPUDriver",
    "GPUMemory",
    "GPULinks",
    "GPUFabric",
    "GPUClocks",
    "GPUErrors",
)
"""The names of all there are, beside those of a pool's own Jobs."""


@dataclass(frozen=True, kw_only=True)
class ChecksObservation:
    """image_digest: what the machine says it runs, None while it says nothing usable."""

    findings: tuple[Finding, ...]
    image_digest: str | None = None


def look_at(
    server: Server,
    pool: NodePool,
    image: Image | None,
    node: CheckedNode,
    clock_skew_seconds: float | None,
    *,
    has_ntp_servers: bool,
) -> ChecksObservation:
    """Everything at this moment; only the first, about the facts themselves, while there are none.

    image: the one that the server's order names, from which the expected digest comes. Server.status.imageDigest is
    taken from the same Image once the boot has joined, and serves where the Image is gone.
    """
    facts, finding = read_facts(node)
    if facts is None:
        return ChecksObservation(findings=(finding,))
    settings = pool.spec.verification
    ref, digest = _ordered(server, image)
    system = check_system(
        node,
        facts,
        settings,
        image_ref=ref,
        image_digest=digest,
        clock_skew_seconds=clock_skew_seconds,
        has_ntp_servers=has_ntp_servers,
    )
    hardware = check_hardware(server, settings.expected, facts)
    return ChecksObservation(
        findings=(finding, check_credential(server), *system, *hardware, *check_gpus(settings, facts)),
        image_digest=facts.image_digest[:71],
    )


def _ordered(server: Server, image: Image | None) -> tuple[str | None, str | None]:
    status = server.status
    ref = status.order.image_ref if status.order is not None else None
    if image is not None and image.name == ref:
        return ref, image.spec.digest
    return ref, status.image_digest if ref is not None and status.image_ref == ref else None
