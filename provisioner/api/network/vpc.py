"""VPC: a tenant's network, apart from those of all other tenants. It lies in the tenant's namespace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import NAME_RULES
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed, optional
from provisioner.api.network.infiniband_rules import PKEY_PATTERN
from provisioner.api.network.ip_rules import (
    ADDRESS_LENGTH,
    ADDRESS_RULES,
    PREFIX_LENGTH,
    ROUTE_RULES,
    TENANT_RULES,
    TENANT_SUBNET_RULES,
)

MAX_CIDRS: Final = 8
MAX_ROUTES: Final = 64
MAX_PEERS: Final = 16


@dataclass(frozen=True, kw_only=True)
class VPCRoute:
    """Addresses behind one of the VPC's attachments, such as a router or a storage gateway of the tenant."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!isCIDR(self.destination) || !isIP(self.nextHop) || "
            "cidr(self.destination).ip().family() == ip(self.nextHop).family()",
            "destination and nextHop of a route are of one family, both IPv4 or both IPv6",
        ),
    )
    destination: str = described(
        "Addresses that are reached by nextHop, such as 192.168.7.0/24.", max_length=PREFIX_LENGTH, rules=ROUTE_RULES
    )
    next_hop: str = described(
        "Address of an attachment of this VPC, which may send from destination, too.",
        max_length=ADDRESS_LENGTH,
        rules=ADDRESS_RULES,
    )


@dataclass(frozen=True, kw_only=True)
class VPCPeer:
    """Another VPC with which this one exchanges packets, once that one names this one, too."""

    namespace: str = described("Namespace of the other VPC.", max_length=63, rules=TENANT_RULES)
    name: str = described("Name of the other VPC.", max_length=63, rules=NAME_RULES)


@dataclass(frozen=True, kw_only=True)
class VPCInfiniBand:
    """What the VPC has on InfiniBand."""

    partition: bool = described(
        "Whether it has a partition, with a P_Key of its own: the InfiniBand ports of the servers that are attached to "
        "it are its members. Without one they reach nobody."
    )
    ip_over_ib: bool = described("Whether IP over InfiniBand works in the partition.", server_default=False)


@dataclass(frozen=True, kw_only=True)
class VPCSpec:
    """What the tenant's network shall be."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.cidrs.all(a, !isCIDR(a) || self.cidrs.all(b, a == b || !isCIDR(b) || !cidr(a).containsCIDR(b)))",
            "two of the VPC's cidrs overlap: give each its own addresses",
            field=".cidrs",
        ),
        CelRule(
            "oldSelf.cidrs.all(a, a in self.cidrs)",
            "a VPC's cidrs only grow, for their addresses may be in use: leave those that are there, and add others",
            field=".cidrs",
        ),
        CelRule(
            "self.mtuBytes >= 1280 || self.cidrs.all(a, !isCIDR(a) || cidr(a).ip().family() == 4)",
            "IPv6 needs an MTU of 1280 bytes at least: raise mtuBytes",
            field=".mtuBytes",
        ),
    )
    cidrs: tuple[str, ...] = described(
        "Subnets of which attachments get addresses, IPv4 and IPv6; an attachment gets one of each family. They may be "
        "the same as another VPC's, unless the two are peers.",
        min_items=1,
        max_items=MAX_CIDRS,
        list_set=True,
        item=FieldSchema(doc="A subnet.", max_length=PREFIX_LENGTH, rules=TENANT_SUBNET_RULES),
    )
    mtu_bytes: int = described(
        "Largest packet that attachments may send, in bytes. The underlay must carry 50 bytes more.",
        server_default=1450,
        minimum=576,
        maximum=9166,
    )
    routes: tuple[VPCRoute, ...] = listed(
        "Addresses behind attachments.", max_items=MAX_ROUTES, list_map_keys=("destination",)
    )
    peers: tuple[VPCPeer, ...] = listed(
        "VPCs with which packets are exchanged; both must name each other, and neither may hold by its cidrs or routes "
        "what the other holds.",
        max_items=MAX_PEERS,
        list_map_keys=("namespace", "name"),
    )
    security_group_refs: tuple[str, ...] = listed(
        "SecurityGroups of this namespace that hold for every attachment of the VPC, beside the attachment's own.",
        max_items=8,
        list_set=True,
        item=FieldSchema(doc="Name of a SecurityGroup.", max_length=63, rules=NAME_RULES),
    )
    infiniband: VPCInfiniBand | None = optional("What it has on InfiniBand; nothing if absent.")


@dataclass(frozen=True, kw_only=True)
class VPCPeerStatus:
    """A VPC that is named by this one and names it, and the addresses that it holds here."""

    namespace: str = described("Namespace of the peer.", max_length=63)
    name: str = described("Name of the peer.", max_length=63)
    prefixes: tuple[str, ...] = described(
        "Its cidrs and routes, sorted, as it was accepted with them: no other peer takes them by what it adds later.",
        max_items=MAX_CIDRS + MAX_ROUTES,
        item=FieldSchema(doc="Addresses, such as 10.2.0.0/16.", max_length=PREFIX_LENGTH),
    )


@dataclass(frozen=True, kw_only=True)
class VPCStatus:
    """What the network was given."""

    vni: int | None = optional("VXLAN network identifier, its own among all VPCs.")
    pkey: str | None = optional(
        "P_Key of its partition on InfiniBand, its own among all VPCs, such as 0x0101.",
        max_length=6,
        pattern=PKEY_PATTERN,
    )
    attachments: int | None = optional("Attachments of the VPC.")
    enforced_attachments: int | None = optional("Those of which the DPU has confirmed what holds.")
    peers: tuple[VPCPeerStatus, ...] | None = optional("Addresses that each of its peers holds.", max_items=MAX_PEERS)
    """None: nothing was ever recorded, as by versions that did not; that no peer holds anything is recorded, too."""
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class VPC(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="VPC",
        short="vpc",
        namespaced=True,
        description="A tenant's network, apart from those of all other tenants.",
        columns=(
            Column("CIDR", ".spec.cidrs[0]"),
            Column("VNI", ".status.vni", type="integer"),
            Column("P_Key", ".status.pkey", priority=1),
            Column("Attachments", ".status.attachments", type="integer"),
            Column("Enforced", ".status.enforcedAttachments", type="integer"),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
            Column("Message", ".status.conditions[?(@.type=='Ready')].message", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(CelRule("self.metadata.name.size() <= 63", "the name of a VPC has at most 63 characters"),),
    )
    spec: VPCSpec
    status: VPCStatus = VPCStatus()
