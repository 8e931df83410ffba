"""DPUNetwork: all that one DPU enforces, compiled for it. Its agent reads this object and no other.

Named as the DPU. The API server counts its `metadata.generation` up with each change of the spec; the agent
acknowledges that number once a dump of the kernel agrees with it, whatever the card says of `spec.card`. Its long lists
are replaced whole: who owns each of their entries would be as much again as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.schema import IPV4_PATTERN, Column, FieldSchema, Kind, described, listed, optional
from provisioner.api.machinery.values import MAC_PATTERN
from provisioner.api.network.card import CardConfiguration, CardStatus
from provisioner.api.network.ip_rules import ADDRESS_LENGTH, FUNCTION_PATTERN, PREFIX_LENGTH
from provisioner.api.network.security_group import Action, Direction, Protocol
from provisioner.api.network.vpc_attachment import ForwardingState

_PREFIX = FieldSchema(doc="Addresses, such as 10.1.0.3/32.", max_length=PREFIX_LENGTH)
_ADDRESS = FieldSchema(doc="An address.", max_length=ADDRESS_LENGTH)


@dataclass(frozen=True, kw_only=True)
class RemotePrefixes:
    """Addresses of the VPC, or of one that it reaches, behind another DPU."""

    vtep: str = described("Address of that DPU on the underlay.", max_length=15, pattern=IPV4_PATTERN)
    prefixes: tuple[str, ...] = described("The addresses, sorted.", max_items=4096, item=_PREFIX)


@dataclass(frozen=True, kw_only=True)
class DPUVPC:
    """A VPC that the DPU takes part in: one routing table, one VXLAN device."""

    vni: int = described("VXLAN network identifier.", minimum=1, maximum=16777215)
    vpc: str = described("Namespace and name of the VPC, for people: blue/main.", max_length=127)
    mtu_bytes: int = described("Largest packet inside, in bytes.", minimum=576, maximum=9166)
    remotes: tuple[RemotePrefixes, ...] = listed("What lies behind other DPUs, sorted.", max_items=4096)
    members: tuple[str, ...] = listed(
        "DPUs, by address on the underlay, from which packets of this VNI are taken.",
        max_items=4096,
        item=FieldSchema(doc="An address on the underlay.", max_length=15, pattern=IPV4_PATTERN),
    )
    peer_vnis: tuple[int, ...] = listed(
        "VPCs on this DPU with which packets are exchanged.",
        max_items=16,
        item=FieldSchema(doc="The VNI of a VPC in this object.", minimum=1, maximum=16777215),
    )
    space: tuple[str, ...] = listed(
        "With evpn: cidrs and routes of the VPC, in which all that its members announce of it must lie.",
        max_items=256,
        item=_PREFIX,
    )


@dataclass(frozen=True, kw_only=True)
class PortRule:
    """A rule of a security group, in the order in which it decides."""

    direction: Direction = described("Ingress: to the host; Egress: from it.")
    action: Action = described("What becomes of the packets.")
    protocol: Protocol = described("Protocol.", default="Any")
    ports: tuple[str, ...] = listed(
        "Destination ports; all if empty.", max_items=32, item=FieldSchema(doc="443 or 1-9.", max_length=11)
    )
    cidrs: tuple[str, ...] = listed("The other side; all if empty.", max_items=32, item=_PREFIX)
    stateful: bool = described("Whether answers to what it lets through pass by themselves.", default=False)


@dataclass(frozen=True, kw_only=True)
class DPUPort:
    """A function that the host sees. What is not in the list is isolated."""

    function: str = described("Function: pf0, pf0vf3.", max_length=8, pattern=FUNCTION_PATTERN)
    vni: int = described("VPC that it is in.", minimum=1, maximum=16777215)
    state: ForwardingState = described("What becomes of its packets.")
    mac_address: str = described("MAC address of the function.", max_length=17, pattern=MAC_PATTERN)
    addresses: tuple[str, ...] = described("Addresses of the host.", max_items=2, item=_ADDRESS)
    gateways: tuple[str, ...] = described(
        "The DPU's own address in each pair, in the same order.", max_items=2, item=_ADDRESS
    )
    prefixes: tuple[str, ...] = listed(
        "Further addresses behind the host, from which it may send.", max_items=64, item=_PREFIX
    )
    rules: tuple[PortRule, ...] = listed(
        "Rules of its security groups, the deciding one first. A direction without a rule is open; in one with rules, "
        "what none of them allows is dropped.",
        max_items=2048,
    )


@dataclass(frozen=True, kw_only=True)
class HostBoot:
    """The host as it boots and joins through the DPU."""

    server: str = described("Name of the host.", max_length=63)
    function: str = described("Function that it boots by: pf0.", max_length=8, pattern=FUNCTION_PATTERN)
    mac_address: str = described("Boot MAC address of the host.", max_length=17, pattern=MAC_PATTERN)
    address: str = described("Address of the host on the boot network.", max_length=15, pattern=IPV4_PATTERN)


@dataclass(frozen=True, kw_only=True)
class DPUEvpn:
    """How the DPU exchanges routes with others."""

    asn: int = described("Number of the autonomous system.", minimum=1, maximum=65535)
    reflectors: tuple[str, ...] = described(
        "Route reflectors, sorted.",
        min_items=1,
        max_items=4,
        item=FieldSchema(doc="An address on the underlay.", max_length=15, pattern=IPV4_PATTERN),
    )


@dataclass(frozen=True, kw_only=True)
class DPUNetworkSpec:
    """What the DPU shall enforce."""

    vtep_address: str = described("The DPU's own address on the underlay.", max_length=15, pattern=IPV4_PATTERN)
    vpcs: tuple[DPUVPC, ...] = listed("VPCs of its ports, sorted.", max_items=256, list_map_keys=("vni",))
    ports: tuple[DPUPort, ...] = listed("Ports with an attachment, sorted.", max_items=256, list_map_keys=("function",))
    host_boot: HostBoot | None = optional(
        "The host that boots through the DPU; absent where it boots by itself, or has no address yet."
    )
    card: CardConfiguration | None = optional(
        "What the card itself is to be brought to; absent where nothing was declared."
    )
    evpn: DPUEvpn | None = optional(
        "How the DPU hears what lies behind others, and says what lies behind it; absent where remotes say so."
    )


@dataclass(frozen=True, kw_only=True)
class PortStatus:
    """What the kernel of the DPU does with a port, as its agent has read it back."""

    function: str = described("Function: pf0, pf0vf3.", max_length=8, pattern=FUNCTION_PATTERN)
    state: ForwardingState = described("What becomes of its packets.")
    offloaded: Literal["Yes", "No", "Unknown"] = described("Whether the card itself forwards them.", default="Unknown")


@dataclass(frozen=True, kw_only=True)
class DPUNetworkStatus:
    """What the agent has found in the kernel. The DPU says so of itself."""

    observed_generation: int | None = optional(
        "Generation of the spec with which the kernel agrees, but for ports that have a problem of their own and are "
        "isolated: acknowledged after a dump, never before."
    )
    vnis: tuple[int, ...] = listed(
        "VNIs that the kernel knows, wanted or not.",
        max_items=512,
        item=FieldSchema(doc="A VNI.", minimum=1, maximum=16777215),
    )
    ports: tuple[PortStatus, ...] = listed("Ports.", max_items=256, list_map_keys=("function",))
    mended_time: str | None = optional(
        "When the agent last found the kernel to be other than it had left it, and mended it.", format="date-time"
    )
    card: CardStatus | None = optional(
        "How the card stands to what was declared of it; absent while the agent has not looked."
    )
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class DPUNetwork(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="DPUNetwork",
        short="dpunet",
        description="All that one DPU enforces; written by the controller, acknowledged by the DPU's agent.",
        columns=(
            Column("VTEP", ".spec.vtepAddress"),
            Column("Generation", ".metadata.generation", type="integer"),
            Column("Enforced", ".status.observedGeneration", type="integer"),
            Column("Applied", ".status.conditions[?(@.type=='Applied')].status"),
            Column("Reason", ".status.conditions[?(@.type=='Applied')].reason"),
            Column("Card", ".status.card.state"),
            Column("Message", ".status.conditions[?(@.type=='Applied')].message", priority=1),
            Column("Card-Message", ".status.conditions[?(@.type=='CardConfigured')].message", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
    )
    spec: DPUNetworkSpec
    status: DPUNetworkStatus = DPUNetworkStatus()
