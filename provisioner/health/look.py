"""Everything that is checked without running anything on the node. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.servers.attestation import CREDENTIAL_CONTESTED
from provisioner.health.checks.facts import read_facts
from provisioner.health.checks.finding import Finding, fine, wrong
from provisioner.health.checks.gpu.look import check_gpus
from provisioner.health.checks.hardware import check_hardware
from provisioner.health.checks.system import check_system
from provisioner.health.situation import CheckInputs
from provisioner.rules.nodes import NodeView


def check_credential(server: Server) -> Finding:
    """Whether one machine alone asked for the credential by which the Node joined. It fails where two did and neither
    proved anything: one of them is not this server.

    Nothing that comes later changes that. A Node that was let in before the second one asked stays in: who takes an
    address must not be able to end what runs there.
    """
    contested = find_condition(server.status.conditions, CREDENTIAL_CONTESTED)
    if contested is None or contested.status != "True":
        return fine("Credential", "no other machine asked for the credential of this boot")
    return wrong(
        "Credential",
        "Contested",
        observed="two machines asked for the credential of this boot, by different keys, and proved nothing",
        expected="one",
        remedy=f"find out who has the server's address ({server.status.address}), then have the server booted again",
        patience_seconds=0.0,
    )


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


def look_at(situation: CheckInputs, pool: NodePool, node: NodeView) -> ChecksObservation:
    """Everything at this moment; only the first, about the facts themselves, while there are none. `pool` and `node`
    are those of the situation, which has both."""
    server = situation.server
    facts, finding = read_facts(node)
    if facts is None:
        return ChecksObservation(findings=(finding,))
    settings = pool.spec.verification
    ref, digest = _ordered(server, situation.image)
    system = check_system(
        node,
        facts,
        settings,
        image_ref=ref,
        image_digest=digest,
        clock_skew_seconds=situation.clock_skew_seconds,
        has_ntp_servers=situation.has_ntp_servers,
    )
    hardware = check_hardware(server, settings.expected, facts)
    return ChecksObservation(
        findings=(finding, check_credential(server), *system, *hardware, *check_gpus(settings, facts)),
        image_digest=facts.image_digest[:71],
    )


def _ordered(server: Server, image: Image | None) -> tuple[str | None, str | None]:
    """Name and digest of the Image of the order. Server.status.imageDigest is taken from the same Image once the boot
    has joined, and serves where the Image is gone."""
    status = server.status
    ref = status.order.image_ref if status.order is not None else None
    if image is not None and image.name == ref:
        return ref, image.spec.digest
    return ref, status.image_digest if ref is not None and status.image_ref == ref else None
