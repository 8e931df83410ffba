"""InfiniBandFabric: a subnet of InfiniBand and what manages it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import CERTIFICATE_RULES, NAME_RULES
from provisioner.api.machinery.schema import CelRule, Column, FieldSchema, Kind, described, listed, optional
from provisioner.api.network.infiniband_rules import GUID_RULES

THE_FABRIC: Final = "default"
"""Of ports that name none."""

FabricManager = Literal["OpenSM", "UFM"]


@dataclass(frozen=True, kw_only=True)
class UFM:
    """NVIDIA Unified Fabric Manager, by its REST API."""

    url: str = described(
        "Base URL, such as https://10.90.0.40.",
        max_length=253,
        rules=(
            CelRule(
                "self.matches('^https://[][A-Za-z0-9.:-]+/?$')",
                "the URL of a UFM is https:// and a host, perhaps with a port: write it as https://10.90.0.40",
            ),
        ),
    )
    credentials_name: str = described(
        "Secret of namespace provisioner-fabrics with the keys username and password.", max_length=253, rules=NAME_RULES
    )
    certificate: str | None = optional(
        "PEM certificate of the authority that signed the UFM's, or the UFM's own; the system's trust store decides if "
        "absent.",
        max_length=16384,
        rules=CERTIFICATE_RULES,
    )


@dataclass(frozen=True, kw_only=True)
class InfiniBandFabricSpec:
    """What manages the partitions of the subnet, and what all its ports may reach."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "(self.manager == 'UFM') == has(self.ufm)",
            "ufm says how a UFM is reached: give it with manager UFM, and leave it out with manager OpenSM, whose host "
            "runs `provisioner infiniband`",
            field=".ufm",
        ),
    )
    manager: FabricManager = described(
        "OpenSM: `provisioner infiniband` on the host of each OpenSM writes its partitions file. UFM: the controller "
        "calls its REST API."
    )
    ufm: UFM | None = optional("How the UFM is reached.")
    shared_guids: tuple[str, ...] = listed(
        "Ports that every port of the subnet may reach, such as those of storage: they alone, beside the subnet "
        "manager's own, are full members of the default partition. Only OpenSM is told so.",
        max_items=1024,
        list_set=True,
        item=FieldSchema(doc="GUID of a port, 0x and 16 digits.", max_length=32, rules=GUID_RULES),
    )


@dataclass(frozen=True, kw_only=True)
class InfiniBandFabricStatus:
    """What is wanted of the fabric, and what holds."""

    partitions: int | None = optional("Partitions that VPCs have on it.")
    ports: int | None = optional("Ports that are members of one.")
    network_generation: int | None = optional("Generation of the InfiniBandNetwork that holds what is wanted now.")
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class InfiniBandFabric(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="InfiniBandFabric",
        short="ibfabric",
        description="A subnet of InfiniBand and what manages it; ports that name none belong to the one named default.",
        columns=(
            Column("Manager", ".spec.manager"),
            Column("Partitions", ".status.partitions", type="integer"),
            Column("Ports", ".status.ports", type="integer"),
            Column("Limited", ".status.conditions[?(@.type=='DefaultPartitionLimited')].status"),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Reason", ".status.conditions[?(@.type=='Ready')].reason"),
            Column("Message", ".status.conditions[?(@.type=='Ready')].message", priority=1),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(CelRule("self.metadata.name.size() <= 63", "the name of a fabric has at most 63 characters"),),
    )
    spec: InfiniBandFabricSpec
    status: InfiniBandFabricStatus = InfiniBandFabricStatus()
