"""Server: an x86-64 or arm64 machine, before, while and after it is a Node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.boot_stage import BootStage
from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.schema import IPV4_PATTERN, NAME_PATTERN, Column, Kind, Rule, described
from provisioner.api.values import DIGEST_PATTERN, MAC_PATTERN

Architecture = Literal["x86_64", "arm64"]
Acceptance = Literal["Pending", "Accepted", "Rejected"]
PowerState = Literal["On", "Off"]
BootMethod = Literal["Pxe", "UefiHttp", "Disk"]
OrderReason = Literal["FirstBoot", "PowerState", "Unordered", "TimedOut", "PowerLost", "ImageChanged", "Requested"]


@dataclass(frozen=True, kw_only=True)
class BMC:
    """How the server's baseboard management controller is reached."""

    address: str = described(
        "Base URL of the Redfish service, such as https://10.90.0.11.", pattern=r"^https?://[^\s/]+(/[^\s]*)?$", max_length=253
    )
    protocol: Literal["Redfish", "IPMI"] = described("Protocol spoken.", default="Redfish", server_default="Redfish")
    credentials_name: str | None = described(
        "Secret in the provisioner's namespace with the keys username and password.", default=None, max_length=253
    )
    certificate: str | None = described(
        "PEM certificate that the BMC must present; the system's trust store decides if absent.",
        default=None,
        max_length=16384,
    )
    system_id: str | None = described(
        "Id of the Redfish ComputerSystem where the BMC has several; the only one if absent.", default=None, max_length=253
    )
    boot_method: BootMethod = described(
        "How the BMC is told to boot: Pxe, or UefiHttp with the URL set through the BMC, or Disk (override left alone).",
        default="Pxe",
        server_default="Pxe",
    )


@dataclass(frozen=True, kw_only=True)
class Interface:
    """A further network interface of the server."""

    name: str = described("Name of the interface, unique in the server.", max_length=63)
    mac_address: str = described("MAC address, lower case with colons.", pattern=MAC_PATTERN)


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """What is registered about a server and what is wanted of it."""

    rack_ref: str | None = described("Rack in which the server stands.", default=None, pattern=NAME_PATTERN, max_length=63)
    position: str | None = described("Place in the rack, such as u01.", default=None, max_length=63)
    serial_number: str | None = described("Serial number from the vendor.", default=None, max_length=128)
    system_uuid: str | None = described(
        "SMBIOS system UUID, lower case.", default=None, pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    )
    architecture: Architecture = described("Processor architecture.", default="x86_64", server_default="x86_64")
    boot_mac_address: str = described(
        "MAC address of the interface that boots, lower case with colons.", pattern=MAC_PATTERN
    )
    subnet_name: str | None = described(
        "Subnet of the rack in which it boots; the rack's first one if absent.", default=None, max_length=63
    )
    boot_address: str | None = described(
        "IPv4 address of the boot interface; allocated from the subnet (see status.address) if absent.",
        default=None,
        pattern=IPV4_PATTERN,
    )
    interfaces: tuple[Interface, ...] = described(
        "Further interfaces.", default=(), max_items=64, list_map_keys=("name",)
    )
    bmc: BMC | None = described(
        "Baseboard management controller; without one a person must press the power button.", default=None
    )
    node_pool_ref: str | None = described(
        "NodePool whose image it boots and whose settings its Node gets; it waits without one.",
        default=None,
        pattern=NAME_PATTERN,
        max_length=63,
    )
    acceptance: Acceptance = described(
        "Whether the machine may boot: Pending machines wait at a console message until somebody accepts them.",
        default="Pending",
        server_default="Pending",
    )
    endorsement_key_sha256: str | None = described(
        "SHA-256 of the TPM's endorsement public key.", default=None, pattern=DIGEST_PATTERN
    )
    power_state: PowerState = described("Wanted power state.", default="On", server_default="On")


@dataclass(frozen=True, kw_only=True)
class BootOrder:
    """A boot that the controller decided on. It is written before anything is done about it."""

    id: str = described("Identifies the order; a new boot is a new id.", max_length=63)
    reason: OrderReason = described("Why the boot was ordered.")
    ordered_time: str = described("When it was ordered.", format="date-time")
    attempt: int = described("Counts the orders since the server was last Ready, from 1.", minimum=1)
    image_ref: str | None = described("Image that the server is to boot.", default=None, max_length=253)
    boot_id_before: str | None = described("Kernel boot id before the order, if one was known.", default=None, max_length=63)
    message: str | None = described("What led to the order, in words.", default=None, max_length=1024)


@dataclass(frozen=True, kw_only=True)
class PowerStatus:
    """What the power controller did and saw."""

    order_id: str | None = described("Last boot order that the BMC accepted.", default=None, max_length=63)
    order_time: str | None = described("When the BMC accepted it.", default=None, format="date-time")
    state: Literal["On", "Off", "Unknown"] | None = described("Power state last seen.", default=None)
    observed_time: str | None = described("When the power state last changed.", default=None, format="date-time")


@dataclass(frozen=True, kw_only=True)
class StageTime:
    """When a stage of the current boot began."""

    stage: BootStage = described("Stage of the boot.")
    time: str = described("When it began, to the microsecond.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class BootProgress:
    """What was heard of the boot that is under way. Reports are not authenticated: they are shown, never acted on alone."""

    stage: BootStage | None = described("Stage that the boot has reached.", default=None)
    boot_id: str | None = described("Kernel boot id that the reports carried.", default=None, max_length=63)
    stage_times: tuple[StageTime, ...] = described(
        "When each stage began.", default=(), list_map_keys=("stage",), max_items=16
    )
    message: str | None = described("Last message of the machine, such as why stage-1 retries.", default=None, max_length=1024)


@dataclass(frozen=True, kw_only=True)
class JoinStatus:
    """What was handed out for the current order."""

    order_id: str | None = described("Boot order whose one join configuration was handed out.", default=None, max_length=63)
    boot_id: str | None = described("Kernel boot id of the machine that got it.", default=None, max_length=63)
    request_key_sha256: str | None = described(
        "Digest of the random key with which the machine may repeat its request.", default=None, pattern=DIGEST_PATTERN
    )
    token_id: str | None = described("Public part of the bootstrap token.", default=None, max_length=16)
    fetched_time: str | None = described("When the join configuration was handed out.", default=None, format="date-time")
    certificate_time: str | None = described("When the client certificate was approved.", default=None, format="date-time")
    refused_time: str | None = described("When a join was last refused for this server.", default=None, format="date-time")
    refused_reason: str | None = described("Why it was refused.", default=None, max_length=253)


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What an unknown machine said of itself when it first appeared. Nothing in it is proven."""

    manufacturer: str | None = described("Manufacturer.", default=None, max_length=128)
    product: str | None = described("Product.", default=None, max_length=128)
    address: str | None = described("Address it was lent.", default=None, max_length=45)
    first_seen_time: str | None = described("When it first appeared.", default=None, format="date-time")


@dataclass(frozen=True, kw_only=True)
class ServerStatus:
    """What is known of a server. Each part has one writer, named in ARCHITECTURE.md."""

    address: str | None = described("IPv4 address of the boot interface.", default=None, pattern=IPV4_PATTERN)
    subnet_name: str | None = described("Subnet of the address.", default=None, max_length=63)
    node_ref: str | None = described("Node that the server is.", default=None, max_length=253)
    boot_stage: BootStage | None = described("Stage of the boot, for the eye; see progress.", default=None)
    boot_id: str | None = described("Kernel boot id that the Node reports.", default=None, max_length=63)
    image_ref: str | None = described("Image that the running system was booted from.", default=None, max_length=253)
    image_digest: str | None = described("Digest of that image.", default=None, pattern=DIGEST_PATTERN)
    order: BootOrder | None = described("The current boot order.", default=None)
    power: PowerStatus | None = described("What the BMC accepted and said.", default=None)
    progress: BootProgress | None = described("What was heard of the boot.", default=None)
    ready_time: str | None = described("When the Node of the current order first was Ready.", default=None, format="date-time")
    join: JoinStatus | None = described("What was handed out for the order.", default=None)
    discovery: Discovery | None = described("What an unknown machine said of itself.", default=None)
    conditions: tuple[Condition, ...] = described("Observations.", default=(), list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class Server(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="Server",
        plural="servers",
        short="srv",
        description="An x86-64 or arm64 machine, before, while and after it is a Node.",
        columns=(
            Column("Rack", ".spec.rackRef"),
            Column("Acceptance", ".spec.acceptance", priority=1),
            Column("Stage", ".status.bootStage"),
            Column("Node", ".status.nodeRef"),
            Column("Image", ".status.imageRef"),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
            Column("Address", ".status.address", priority=1),
            Column("MAC", ".spec.bootMACAddress", priority=1),
            Column("Serial", ".spec.serialNumber", priority=1),
            Column("Message", ".status.conditions[?(@.type=='Ready')].message", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            Rule("self.metadata.name.size() <= 63", "a Server's name is also its Node's name and a label value: at most 63 characters"),
            Rule(
                "self.spec.acceptance != 'Accepted' || has(self.spec.rackRef)",
                "an Accepted server needs spec.rackRef: without a rack it has no subnet to boot from",
            ),
        ),
    )
    metadata: ObjectMeta
    spec: ServerSpec
    status: ServerStatus = ServerStatus()
