"""InfiniBandNetwork: the partitions of one fabric, compiled for what enforces them, which reads no other object.

Named as the fabric. As with a DPUNetwork, `metadata.generation` counts the changes of the spec, and that number is
acknowledged once the ports' own P_Key tables, or UFM's answer, agree with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.schema import Column, FieldSchema, Kind, described, listed, optional
from provisioner.api.network.infiniband_fabric import FabricManager
from provisioner.api.network.infiniband_rules import FIRST_PKEY, GUID, LAST_PKEY
from provisioner.api.network.network_pool import PKeyRange

VPC_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"


@dataclass(frozen=True, kw_only=True)
class Partition:
    """The ports of a VPC, all of them full members."""

    pkey: int = described("P_Key, without the bit of membership.", minimum=FIRST_PKEY, maximum=LAST_PKEY)
    vpc: str = described("Namespace and name of the VPC, for people: blue/main.", max_length=127, pattern=VPC_PATTERN)
    ip_over_ib: bool = described("Whether IP over InfiniBand has a multicast group in it.", default=False)
    guids: tuple[str, ...] = listed("Its ports, sorted.", max_items=32768, list_set=True, item=GUID)


@dataclass(frozen=True, kw_only=True)
class InfiniBandNetworkSpec:
    """What shall hold on the fabric. Ports that are in no partition here have the default one alone."""

    manager: FabricManager = described("What manages the fabric.")
    pkey_ranges: tuple[PKeyRange, ...] = listed(
        "P_Keys of the NetworkPool: partitions with another one are somebody else's, and a UFM's are left alone.",
        max_items=16,
    )
    shared_guids: tuple[str, ...] = listed(
        "Ports that are full members of the default partition, sorted.", max_items=1024, list_set=True, item=GUID
    )
    partitions: tuple[Partition, ...] = listed("Partitions of VPCs, sorted.", max_items=8192, list_map_keys=("pkey",))


@dataclass(frozen=True, kw_only=True)
class InfiniBandNetworkStatus:
    """What was read back. Who enforces the network says so."""

    observed_generation: int | None = optional(
        "Generation of the spec with which the fabric agrees: acknowledged after it was read back, never before."
    )
    read_from: Literal["Ports", "UFM"] | None = optional(
        "Ports: from the P_Key table of each port that is up; UFM: UFM's own word."
    )
    read_time: str | None = optional("When it was last read.", format="date-time")
    ports: int | None = optional("Ports that were found on the fabric.")
    absent: int | None = optional(
        "Ports that shall be in a partition and are not on the fabric: their servers are off, or a cable is."
    )
    pkeys: tuple[int, ...] = listed(
        "P_Keys that the fabric knows, wanted or not, but for the default one.",
        max_items=LAST_PKEY,
        list_set=True,
        item=FieldSchema(doc="A P_Key.", minimum=FIRST_PKEY, maximum=LAST_PKEY),
    )
    mended_time: str | None = optional(
        "When the partitions were last found to be other than they had been left, and mended.", format="date-time"
    )
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class InfiniBandNetwork(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="InfiniBandNetwork",
        short="ibnet",
        description="The partitions of one fabric; written by the controller, acknowledged by what enforces them.",
        columns=(
            Column("Manager", ".spec.manager"),
            Column("Generation", ".metadata.generation", type="integer"),
            Column("Enforced", ".status.observedGeneration", type="integer"),
            Column("Applied", ".status.conditions[?(@.type=='Applied')].status"),
            Column("Reason", ".status.conditions[?(@.type=='Applied')].reason"),
            Column("Limited", ".status.conditions[?(@.type=='DefaultPartitionLimited')].status"),
            Column("Message", ".status.conditions[?(@.type=='Applied')].message", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
    )
    spec: InfiniBandNetworkSpec
    status: InfiniBandNetworkStatus = InfiniBandNetworkStatus()
