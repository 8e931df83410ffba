"""Status of a Server: what is known of it. Each part has one writer, named in ARCHITECTURE.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from provisioner.api.machinery.meta import Condition
from provisioner.api.machinery.schema import IPV4_PATTERN, FieldSchema, described, listed, optional
from provisioner.api.machinery.values import DIGEST_PATTERN
from provisioner.api.nodes.maintenance import RebootMethod
from provisioner.api.servers.attestation import MAX_CREDENTIALS, AttestationStatus, IssuedCredential
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.faults import MAX_FAULTS, FaultRecord

OrderReason = Literal["FirstBoot", "PowerState", "Unordered", "TimedOut", "PowerLost", "ImageChanged", "Requested"]


@dataclass(frozen=True, kw_only=True)
class BootOrder:
    """A boot that the controller decided on. It is written before anything is done about it."""

    id: str = described("Identifies the order; a new boot is a new id.", max_length=63)
    reason: OrderReason = described("Why the boot was ordered.")
    ordered_time: str = described("When it was ordered.", format="date-time")
    attempt: int = described("Counts the orders since the server was last Ready, from 1.", minimum=1)
    image_ref: str | None = optional("Image that the server is to boot.", max_length=253)
    node_pool_ref: str | None = optional("NodePool whose Node it is to become.", max_length=63)
    boot_id_before: str | None = optional("Kernel boot id before the order, if one was known.", max_length=63)
    message: str | None = optional("What led to the order, in words.", max_length=1024)
    method: RebootMethod | None = optional(
        "With reason Requested: who carries it out. Kexec and Reboot: the agent in the running system; Reset and "
        "PowerCycle: the BMC. Absent: the BMC, as it sees fit."
    )
    maintenance_ref: str | None = optional(
        "Maintenance that the order, or the one before it, belongs to.", max_length=253
    )
    attempt_id: str | None = optional(
        "Attempt of that Maintenance (status.reboot.id) that was answered last.", max_length=63
    )


@dataclass(frozen=True, kw_only=True)
class PowerStatus:
    """What the power controller did and saw."""

    order_id: str | None = optional("Last boot order that the BMC accepted.", max_length=63)
    order_time: str | None = optional("When the BMC accepted it.", format="date-time")
    state: Literal["On", "Off", "Unknown"] | None = optional("Power state last seen.")
    observed_time: str | None = optional("When the power state last changed.", format="date-time")
    cut_order_id: str | None = optional(
        "Boot order of method PowerCycle for which the server was seen without power; powering on completes it.",
        max_length=63,
    )
    shutdown_time: str | None = optional(
        "When the system was asked to shut down, while the answer is awaited.", format="date-time"
    )


@dataclass(frozen=True, kw_only=True)
class StageTime:
    """When a stage of the current boot began."""

    stage: BootStage = described("Stage of the boot.")
    time: str = described("When it began, to the microsecond.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class BootProgress:
    """What was heard of the boot under way. Nobody proves a report: it is shown, and nothing is decided on it."""

    stage: BootStage | None = optional("Stage that the boot has reached.")
    boot_id: str | None = optional("Kernel boot id that the reports carried.", max_length=63)
    stage_times: tuple[StageTime, ...] = listed("When each stage began.", list_map_keys=("stage",), max_items=16)
    message: str | None = optional("Last message of the machine, such as why stage-1 retries.", max_length=1024)


@dataclass(frozen=True, kw_only=True)
class JoinStatus:
    """What was handed out for the current order."""

    order_id: str | None = optional("Boot order whose one join configuration was handed out.", max_length=63)
    boot_id: str | None = optional("Kernel boot id of the machine that got it.", max_length=63)
    request_key_sha256: str | None = optional(
        "Digest of the random key with which the machine may repeat its request.", pattern=DIGEST_PATTERN
    )
    token_id: str | None = optional("Public part of the bootstrap token.", max_length=16)
    fetched_time: str | None = optional("When the join configuration was handed out.", format="date-time")
    certificate_time: str | None = optional("When the client certificate was approved.", format="date-time")
    certificate_token_id: str | None = optional(
        "Token on which a client certificate was approved; equal to tokenID once the token is spent.", max_length=16
    )
    certificate_request_name: str | None = optional(
        "CertificateSigningRequest of the client certificate approved last.", max_length=253
    )
    credentials: tuple[str, ...] = listed(
        "Credential ids (X509SHA256=…) of this boot's client certificates: nobody else may renew.",
        max_items=4,
        list_set=True,
        item=FieldSchema(doc="A credential id.", max_length=128),
    )
    refused_time: str | None = optional("When a join was last refused for this server.", format="date-time")
    refused_reason: str | None = optional("Why it was refused.", max_length=253)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """How one check before use came out."""

    name: str = described("Name of the check.", max_length=63)
    result: Literal["Passed", "Failed", "Running", "Unknown"] = described("How it came out.")
    reason: str = described("One CamelCase word.", max_length=63)
    message: str = described("What was observed, what was expected, and what to do.", max_length=1024)
    time: str | None = optional("When it came out so.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The checks of one boot before its Node may be used."""

    boot_id: str = described("Kernel boot id that was checked.", max_length=63)
    image_digest: str | None = optional("Digest of the image that the machine says it runs.", max_length=71)
    attempt: int = described("Counts the rounds of checks in this boot, from 1.", minimum=1)
    started_time: str = described("When this round began.", format="date-time")
    finished_time: str | None = optional("When it was decided.", format="date-time")
    released_by: str | None = optional(
        "The words of the person's request that let the node in although a check had failed.", max_length=1024
    )
    retry_seen_time: str | None = optional(
        "Transition time of the request for a retry that was answered last.", format="date-time"
    )
    checks: tuple[CheckResult, ...] = listed("The checks.", max_items=64, list_map_keys=("name",))


def is_given_up(verification: Verification, attempts: int) -> bool:
    """Whether the checks of that boot have failed for the last time, of so many rounds (NodePool.spec.verification).

    The health controller begins none by itself any more: it waits for a person, to repair, retry or release.
    """
    over = verification.finished_time is not None and verification.released_by is None
    failed = any(check.result == "Failed" for check in verification.checks)
    return over and failed and verification.attempt >= attempts


Lifecycle = Literal[
    "Registered",
    "Discovered",
    "Accepted",
    "Booting",
    "Booted",
    "Verified",
    "InProduction",
    "Maintenance",
    "Held",
    "Retired",
]
"""Where a server is between its registration and its retirement."""


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What an unknown machine said of itself when it first appeared. Nothing in it is proven."""

    manufacturer: str | None = optional("Manufacturer.", max_length=128)
    product: str | None = optional("Product.", max_length=128)
    serial_number: str | None = optional("Serial number that it claims.", max_length=128)
    system_uuid: str | None = optional("SMBIOS system UUID that it claims.", max_length=36)
    address: str | None = optional("Address from which it asked.", max_length=45)
    first_seen_time: str | None = optional("When it first appeared.", format="date-time")
    dhcp_time: str | None = optional(
        "When it was heard to ask for an address by DHCP; absent if all it did was to fetch a URL.", format="date-time"
    )


@dataclass(frozen=True, kw_only=True)
class UpgradeFailure:
    """A rollout that this server did not get through."""

    image_ref: str = described("Image with which it failed.", max_length=253)
    node_pool_ref: str | None = optional("NodePool that it was to move to, if it was.", max_length=63)
    time: str = described("When it failed.", format="date-time")
    maintenance_ref: str | None = optional("Maintenance that was to bring it there.", max_length=253)
    message: str = described("What is known of it.", max_length=1024)


@dataclass(frozen=True, kw_only=True)
class ServerStatus:
    """What is known of a server. Each part has one writer, named in ARCHITECTURE.md."""

    address: str | None = optional("IPv4 address of the boot interface.", pattern=IPV4_PATTERN)
    subnet_name: str | None = optional("Subnet of the address.", max_length=63)
    assigned_image_ref: str | None = optional(
        "Image that the server boots unless a Maintenance says otherwise. The rollout of its NodePool alone moves it.",
        max_length=253,
    )
    assigned_node_pool_ref: str | None = optional(
        "NodePool whose Node the server becomes when it boots, unless a Maintenance says otherwise; that of its spec "
        "if absent. The rollout alone moves it.",
        max_length=63,
    )
    upgrade_failure: UpgradeFailure | None = optional(
        "The last rollout that it failed in: it keeps its place there until a person decides."
    )
    node_ref: str | None = optional("Node that the server is.", max_length=253)
    node_uid: str | None = optional("Uid of the Node object that was prepared for the server.", max_length=64)
    node_taints: tuple[str, ...] = listed(
        "Taints (key:effect) that were put on that Node; only these are taken off again.",
        max_items=256,
        list_set=True,
        item=FieldSchema(doc="Key and effect of a taint.", max_length=400),
    )
    boot_stage: BootStage | None = optional("Stage of the boot, for the eye; see progress.")
    boot_id: str | None = optional("Kernel boot id that the Node reports.", max_length=63)
    image_ref: str | None = optional("Image that the running system was booted from.", max_length=253)
    image_digest: str | None = optional("Digest of that image.", pattern=DIGEST_PATTERN)
    node_pool_ref: str | None = optional(
        "NodePool that the running system was booted for: its settings hold for what runs there.", max_length=63
    )
    order: BootOrder | None = optional("The current boot order.")
    power: PowerStatus | None = optional("What the BMC accepted and said.")
    progress: BootProgress | None = optional("What was heard of the boot.")
    ready_time: str | None = optional("When the Node of the current order first was Ready.", format="date-time")
    join: JoinStatus | None = optional("What was handed out for the order.")
    attestation: AttestationStatus | None = optional("What the machine proved of itself.")
    credentials: tuple[IssuedCredential, ...] = listed(
        "Bootstrap tokens that were handed out, from the oldest on record to the newest. Nothing is changed in it: "
        "what is new is added, and of more than can be kept the oldest goes.",
        max_items=MAX_CREDENTIALS,
    )
    verification: Verification | None = optional("The checks of the running boot.")
    lifecycle: Lifecycle | None = optional(
        "Where the server is, the first of these that holds: Retired (Rejected, or wanted Off without a Maintenance), "
        "Maintenance (one disturbs it), Held (by a person), Registered or Discovered (not accepted), Accepted (never "
        "booted), Booting, Booted (not verified), Verified (and jobs are kept away otherwise), InProduction."
    )
    discovery: Discovery | None = optional("What an unknown machine said of itself.")
    faults: tuple[FaultRecord, ...] = listed(
        "Faults that were found. A fault stays on record when the node no longer reports it.",
        max_items=MAX_FAULTS,
    )
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))
