"""NetworkClaim: that a value is taken. Who creates the object named after the value has it; nobody else can."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import ClassVar, Literal

from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.schema import (
    NAME_PATTERN,
    CelRule,
    Column,
    FieldSchema,
    Kind,
    described,
    listed,
    optional,
)

ClaimedValue = Literal["VNI", "Address", "Port", "PKey"]


@dataclass(frozen=True, kw_only=True)
class ClaimHolder:
    """Whose the value is."""

    kind: Literal["VPC", "VPCAttachment"] = described("Kind of the holder.")
    namespace: str = described("Namespace of the holder.", max_length=63, pattern=NAME_PATTERN)
    name: str = described("Name of the holder.", max_length=63, pattern=NAME_PATTERN)
    uid: str = described("Which object of that name it was.", max_length=64)


@dataclass(frozen=True, kw_only=True)
class NetworkClaimSpec:
    """What is claimed. It never changes: a value is released by deleting its claim."""

    type: ClaimedValue = described("What kind of value this is.")
    value: str = described("The value: 10001, 10.1.0.3, dpu-01/pf0, or 0x0101.", max_length=128)
    holder: ClaimHolder = described("Whose it is.")


@dataclass(frozen=True, kw_only=True)
class NetworkClaimStatus:
    """Whether the value is still in use."""

    released_time: str | None = optional(
        "When the holder was found to be gone; the value is nobody's else until the DPUs, or of a P_Key the fabrics, "
        "have confirmed that they know it no more.",
        format="date-time",
    )
    waits_for: tuple[str, ...] = listed(
        "DPUs, or fabrics, that have not confirmed it, the first ones.",
        max_items=8,
        item=FieldSchema(doc="Name of a DPU, or of a fabric.", max_length=63),
    )


@dataclass(frozen=True, kw_only=True)
class NetworkClaim(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="NetworkClaim",
        short="netclaim",
        description="That a VPC or an attachment has a value, after which the claim is named.",
        columns=(
            Column("Type", ".spec.type"),
            Column("Value", ".spec.value"),
            Column("Namespace", ".spec.holder.namespace"),
            Column("Holder", ".spec.holder.name"),
            Column("Released", ".status.releasedTime", type="date"),
            Column("Waits", ".status.waitsFor[0]"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            CelRule(
                "self.spec == oldSelf.spec",
                "a claim never changes: the controller releases a value by deleting its claim",
            ),
        ),
    )
    spec: NetworkClaimSpec
    status: NetworkClaimStatus = NetworkClaimStatus()


def vni_claim(vni: int) -> str:
    """Name of the claim of a VNI: `vni-10001`."""
    return f"vni-{vni}"


def address_claim(vni: int, address: IPv4Address | IPv6Address) -> str:
    """Name of the claim of an address in the VPC that has `vni`: `vni-10001.10.1.0.3`,
    `vni-10001.fd00-0001-0000-0000-0000-0000-0000-0003`. Addresses of two VPCs may be the same, their VNIs are not."""
    return f"{vni_claim(vni)}.{address.exploded.replace(':', '-')}"


def port_claim(dpu: str, function: str) -> str:
    """Name of the claim of a function of a card: `port.dpu-01.pf0`."""
    return f"port.{dpu}.{function}"


def pkey_claim(pkey: int) -> str:
    """Name of the claim of a P_Key: `pkey-0101`. It is taken on all fabrics: a VPC has the same one everywhere."""
    return f"pkey-{pkey:04x}"
