"""Server: an x86-64 or arm64 machine, before, while and after it is a Node.

A DPU is one, too: what boots, joins, is checked and maintained is a machine, whether it stands in a rack or sits in
another one (`spec.dpu`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.rules import (
    BMC_ADDRESS_RULES,
    BMC_PROTOCOL_RULES,
    CERTIFICATE_RULES,
    ENDORSEMENT_KEY_RULES,
    IPV4_RULES,
    LABEL_PATTERN,
    LABEL_RULES,
    MAC_RULES,
    NAME_RULES,
    PRINTABLE_RULES,
    UUID_RULES,
)
from provisioner.api.machinery.schema import CelRule, Column, Kind, described, listed, optional
from provisioner.api.network.infiniband_fabric import THE_FABRIC
from provisioner.api.network.infiniband_rules import GUID_RULES
from provisioner.api.network.ip_rules import TENANT_RULES
from provisioner.api.servers.dpu import DPU
from provisioner.api.servers.server_status import BootOrder as BootOrder
from provisioner.api.servers.server_status import BootProgress as BootProgress
from provisioner.api.servers.server_status import CheckResult as CheckResult
from provisioner.api.servers.server_status import Discovery as Discovery
from provisioner.api.servers.server_status import JoinStatus as JoinStatus
from provisioner.api.servers.server_status import Lifecycle as Lifecycle
from provisioner.api.servers.server_status import OrderReason as OrderReason
from provisioner.api.servers.server_status import PowerStatus as PowerStatus
from provisioner.api.servers.server_status import ServerStatus as ServerStatus
from provisioner.api.servers.server_status import StageTime as StageTime
from provisioner.api.servers.server_status import Verification as Verification

Architecture = Literal["x86_64", "arm64"]
Acceptance = Literal["Pending", "Accepted", "Rejected"]
PowerState = Literal["On", "Off"]
BootMethod = Literal["Pxe", "UefiHttp", "Disk"]
BmcProtocol = Literal["Redfish", "IPMI"]
BmcFirmware = Literal["UEFI", "BIOS"]
UpgradeChoice = Literal["Follow", "Excluded"]


@dataclass(frozen=True, kw_only=True)
class BMC:
    """How the server's baseboard management controller is reached."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.bootMethod != 'UefiHttp' || self.protocol == 'Redfish'",
            "bootMethod UefiHttp sets the URL by Redfish, which protocol IPMI cannot: use bootMethod Pxe",
            field=".bootMethod",
        ),
        CelRule(
            "!self.address.startsWith('http://') || has(self.allowPlainHTTP) && self.allowPlainHTTP",
            "by http:// the BMC's password and sessions are readable on the way: write https://, or set allowPlainHTTP "
            "to true where nothing but the controller reaches the BMC",
            field=".address",
        ),
        *BMC_PROTOCOL_RULES,
    )
    address: str = described(
        "Base URL of the Redfish service, such as https://10.90.0.11; with protocol IPMI ipmi://10.90.0.11, and a port "
        "where it is not 623.",
        max_length=253,
        rules=BMC_ADDRESS_RULES,
    )
    protocol: BmcProtocol = described("Protocol spoken.", server_default="Redfish")
    credentials_name: str | None = optional(
        "Secret of namespace provisioner-bmcs with the keys username and password.", max_length=253, rules=NAME_RULES
    )
    certificate: str | None = optional(
        "PEM certificate that the BMC must present; the system's trust store decides if absent.",
        max_length=16384,
        rules=CERTIFICATE_RULES,
    )
    system_id: str | None = optional(
        "Id of the Redfish ComputerSystem where the BMC has several; the only one if absent.",
        max_length=253,
        rules=PRINTABLE_RULES,
    )
    allow_plain_http: bool = described(
        "Whether an address by http:// is spoken to: user name, password and sessions are readable on the way then.",
        default=False,
    )
    mac_address: str | None = optional(
        "MAC address of the BMC, for finding it; lower case with colons.", max_length=32, rules=MAC_RULES
    )
    boot_method: BootMethod = described(
        "How the BMC is told to boot: Pxe, or UefiHttp with the URL set through the BMC, or Disk (left alone).",
        server_default="Pxe",
    )
    firmware: BmcFirmware = described(
        "Firmware that protocol IPMI tells to boot: its boot flags say UEFI (also if absent) or BIOS. Redfish leaves "
        "that alone.",
        default="UEFI",
    )


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A further network interface of the server."""

    name: str = described("Name of the interface, unique in the server.", max_length=63, rules=PRINTABLE_RULES)
    mac_address: str = described("MAC address, lower case with colons.", max_length=32, rules=MAC_RULES)


@dataclass(frozen=True, kw_only=True)
class InfiniBandPort:
    """A port of one of the server's host channel adapters, as a person read it off the card or the packing list.

    Membership in a tenant's partition follows it, so what a node says of itself is never written here.
    """

    guid: str = described(
        "GUID of the port, such as 0x506b4b0300a1b200 (not the node's GUID). No two servers have the same.",
        max_length=32,
        rules=GUID_RULES,
    )
    fabric_ref: str = described(
        "InfiniBandFabric that it is cabled to.", server_default=THE_FABRIC, max_length=63, rules=NAME_RULES
    )


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """What is registered about a server and what is wanted of it."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.acceptance != 'Accepted' || has(self.rackRef)",
            "an Accepted server needs spec.rackRef: without a rack it has no subnet to boot from",
            field=".rackRef",
        ),
        CelRule(
            "self.bootMACAddress == oldSelf.bootMACAddress || self.acceptance != 'Accepted' || "
            "oldSelf.acceptance != 'Accepted'",
            "the boot MAC address identifies an accepted server: set spec.acceptance to Pending together with the new "
            "address (an interface was replaced), then accept the server again",
            field=".bootMACAddress",
        ),
        CelRule(
            "!has(self.interfaces) || self.interfaces.all(a, a.macAddress != self.bootMACAddress && "
            "self.interfaces.exists_one(b, b.macAddress == a.macAddress))",
            "a MAC address occurs twice in this server: spec.interfaces holds the further interfaces, "
            "not the one that boots, each once",
            field=".interfaces",
        ),
        CelRule(
            "!has(self.dpu) || has(self.architecture) && self.architecture == 'arm64'",
            "a DPU is an arm64 machine: set spec.architecture to arm64",
            field=".architecture",
        ),
        CelRule(
            "!has(self.dpu) || !has(self.tenant) && !has(self.infinibandPorts)",
            "tenant and infinibandPorts are of the server in which the card sits: set them there, or the tenant of a "
            "function in spec.dpu.functions",
            field=".dpu",
        ),
        CelRule(
            "has(self.dpu) == has(oldSelf.dpu) || self.acceptance != 'Accepted' || oldSelf.acceptance != 'Accepted'",
            "an accepted server does not become a DPU, nor a DPU a server: set spec.acceptance to Pending together "
            "with the change, then accept it again",
            field=".dpu",
        ),
    )
    rack_ref: str | None = optional("Rack in which the server stands.", max_length=63, rules=NAME_RULES)
    position: str | None = optional("Place in the rack, such as u01.", max_length=63, rules=PRINTABLE_RULES)
    serial_number: str | None = optional("Serial number from the vendor.", max_length=128, rules=PRINTABLE_RULES)
    system_uuid: str | None = optional("SMBIOS system UUID, lower case.", max_length=64, rules=UUID_RULES)
    architecture: Architecture = described("Processor architecture.", server_default="x86_64")
    boot_mac_address: str = described(
        "MAC address of the interface that boots, lower case with colons.", max_length=32, rules=MAC_RULES
    )
    subnet_name: str | None = optional(
        "Subnet of the rack in which it boots; the rack's first one if absent.", max_length=63, rules=LABEL_RULES
    )
    boot_address: str | None = optional(
        "IPv4 address of the boot interface; allocated from the subnet (see status.address) if absent.",
        max_length=15,
        rules=IPV4_RULES,
    )
    interfaces: tuple[Interface, ...] = listed("Further interfaces.", max_items=64, list_map_keys=("name",))
    infiniband_ports: tuple[InfiniBandPort, ...] = listed("Ports on InfiniBand.", max_items=32, list_map_keys=("guid",))
    bmc: BMC | None = optional("Baseboard management controller; without one a person must press the power button.")
    node_pool_ref: str | None = optional(
        "NodePool that it shall be in: whose image it boots and whose settings its Node gets. It waits without one. A "
        "server in use moves when its jobs have ended; see status.nodePoolRef.",
        max_length=63,
        rules=NAME_RULES,
    )
    upgrades: UpgradeChoice | None = optional(
        "Follow: it moves to another image with its NodePool. Excluded: rollouts leave it alone. Follow if absent."
    )
    acceptance: Acceptance = described(
        "Whether the machine may boot: Pending machines wait at a console message until somebody accepts them.",
        server_default="Pending",
    )
    endorsement_key_sha256: str | None = optional(
        "SHA-256 of the TPM's endorsement public key, as the subjectPublicKeyInfo of its certificate; no two Servers "
        "have the same. Only the machine whose TPM holds the key joins as this server then.",
        max_length=71,
        rules=ENDORSEMENT_KEY_RULES,
    )
    dpu: DPU | None = optional(
        "Set of a BlueField card in another server: what enforces the networks of that server's tenants. It boots, "
        "joins and is maintained as every other machine."
    )
    power_state: PowerState = described("Wanted power state.", server_default="On")
    tenant: str | None = optional(
        "Namespace whose VPCs the server may be attached to; none if absent. An attachment of another namespace is "
        "isolated.",
        max_length=63,
        rules=TENANT_RULES,
    )
    network_quarantined: bool | None = optional(
        "Whether nothing may pass of its attachments, Ethernet or InfiniBand, whoever's they are: its tenants cannot "
        "lift it. They keep their addresses."
    )


@dataclass(frozen=True, kw_only=True)
class Server(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="Server",
        short="srv",
        description="An x86-64 or arm64 machine, before, while and after it is a Node.",
        columns=(
            Column("Rack", ".spec.rackRef"),
            Column("DPU-Of", ".spec.dpu.hostRef"),
            Column("Acceptance", ".spec.acceptance", priority=1),
            Column("Lifecycle", ".status.lifecycle"),
            Column("Stage", ".status.bootStage", priority=1),
            Column("Node", ".status.nodeRef"),
            Column("Pool", ".status.nodePoolRef", priority=1),
            Column("Image", ".status.imageRef"),
            Column("Assigned", ".status.assignedImageRef", priority=1),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
            Column("Address", ".status.address", priority=1),
            Column("MAC", ".spec.bootMACAddress", priority=1),
            Column("Serial", ".spec.serialNumber", priority=1),
            Column("Message", ".status.conditions[?(@.type=='Ready')].message", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            CelRule(
                "self.metadata.name.size() <= 63",
                "a Server's name is also its Node's name, its host name and a label value: at most 63 characters",
            ),
            CelRule(
                f"self.metadata.name.matches('{LABEL_PATTERN}')",
                "a Server's name is also its host name: no dots",
                expression="'a Server\\'s name is also its host name, which has no dots: write ' + "
                "self.metadata.name.replace('.', '-')",
            ),
            CelRule(
                "!has(self.spec.dpu) || self.spec.dpu.hostRef != self.metadata.name",
                "a DPU sits in another server: spec.dpu.hostRef names that one",
            ),
        ),
        selectable=(
            ".spec.rackRef",
            ".spec.nodePoolRef",
            ".spec.acceptance",
            ".spec.bootMACAddress",
            ".spec.dpu.hostRef",
        ),
    )
    spec: ServerSpec
    status: ServerStatus = field(default_factory=ServerStatus)
