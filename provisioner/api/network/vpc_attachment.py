"""VPCAttachment: a function of a server's card, in a VPC. It lies in the tenant's namespace, as the VPC does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import NAME_RULES
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed, optional
from provisioner.api.network.ip_rules import ADDRESS_LENGTH, ADDRESS_RULES, FUNCTION_RULES

ForwardingState = Literal["Isolated", "Tenant", "Quarantined"]
"""Isolated: nothing passes; Tenant: the VPC's packets do; Quarantined: nothing passes, as a person said so."""


_NEVER_CHANGES: Final = CelRule(
    "self == oldSelf", "what an attachment joins never changes: delete it and make another one"
)


@dataclass(frozen=True, kw_only=True)
class VPCAttachmentSpec:
    """What is attached to which VPC."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "has(self.dpuRef) ? has(oldSelf.dpuRef) : !has(oldSelf.dpuRef)",
            "what an attachment joins never changes: delete it and make another one",
        ),
    )
    vpc_ref: str = described("VPC of this namespace.", max_length=63, rules=(*NAME_RULES, _NEVER_CHANGES))
    server_ref: str = described(
        "Server, which must be assigned to this namespace (its spec.tenant).",
        max_length=63,
        rules=(*NAME_RULES, _NEVER_CHANGES),
    )
    dpu_ref: str | None = optional(
        "DPU of the server; needed where it has several.", max_length=63, rules=(*NAME_RULES, _NEVER_CHANGES)
    )
    function: str = described(
        "Function of the card that the host sees: pf0, or pf0vf3 for its fourth virtual one.",
        server_default="pf0",
        max_length=8,
        rules=(*FUNCTION_RULES, _NEVER_CHANGES),
    )
    addresses: tuple[str, ...] = listed(
        "Addresses that it shall have, at most one of each family, out of the VPC's cidrs: the odd one of a pair, of "
        "which the even one is its gateway. Those of a family that is not named are chosen for it.",
        max_items=2,
        list_set=True,
        item=FieldSchema(doc="An address.", max_length=ADDRESS_LENGTH, rules=ADDRESS_RULES),
        rules=(
            CelRule(
                "self.size() < 2 || !isIP(self[0]) || !isIP(self[1]) || ip(self[0]).family() != ip(self[1]).family()",
                "an attachment has one IPv4 and one IPv6 address at most",
            ),
        ),
    )
    security_group_refs: tuple[str, ...] = listed(
        "SecurityGroups of this namespace that hold for it, beside the VPC's.",
        max_items=8,
        list_set=True,
        item=FieldSchema(doc="Name of a SecurityGroup.", max_length=63, rules=NAME_RULES),
    )
    quarantined: bool = described(
        "Whether nothing may pass for now. It keeps its addresses. That of the administrators (networkQuarantined of "
        "the Server) holds, too, whatever is written here.",
        server_default=False,
    )


@dataclass(frozen=True, kw_only=True)
class VPCAttachmentStatus:
    """What the attachment was given and what holds."""

    dpu_ref: str | None = optional("DPU that enforces it.", max_length=63)
    mac_address: str | None = optional(
        "MAC address of the function; packets from another one are dropped.", max_length=17
    )
    addresses: tuple[str, ...] = listed(
        "Its addresses, one of each family of the VPC.",
        max_items=2,
        item=FieldSchema(doc="An address.", max_length=ADDRESS_LENGTH),
    )
    gateways: tuple[str, ...] = listed(
        "Gateway of each address: the other one of its pair, on the DPU.",
        max_items=2,
        item=FieldSchema(doc="An address.", max_length=ADDRESS_LENGTH),
    )
    forwarding_state: ForwardingState | None = optional(
        "What the DPU does with its packets, as the DPU has confirmed it."
    )
    network_generation: int | None = optional(
        "Generation of the DPUNetwork that holds this attachment as it is wanted now."
    )
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class VPCAttachment(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="VPCAttachment",
        short="vpca",
        namespaced=True,
        description="A function of a server's card, in a VPC of its tenant.",
        columns=(
            Column("VPC", ".spec.vpcRef"),
            Column("Server", ".spec.serverRef"),
            Column("Function", ".spec.function"),
            Column("Address", ".status.addresses[0]"),
            Column("State", ".status.forwardingState"),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
            Column("Message", ".status.conditions[?(@.type=='Ready')].message", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(CelRule("self.metadata.name.size() <= 63", "the name of a VPCAttachment has at most 63 characters"),),
        selectable=(".spec.vpcRef", ".spec.serverRef"),
    )
    spec: VPCAttachmentSpec
    status: VPCAttachmentStatus = VPCAttachmentStatus()
