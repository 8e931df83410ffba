"""DPU: a BlueField card in a Server; an arm64 machine of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.schema import NAME_PATTERN, Column, Kind, Rule, described
from provisioner.api.server import BMC, Acceptance
from provisioner.api.values import MAC_PATTERN


@dataclass(frozen=True, kw_only=True)
class DPUSpec:
    """What is registered about a DPU."""

    server_ref: str = described("Server in which the card sits.", pattern=NAME_PATTERN, max_length=63)
    serial_number: str | None = described("Serial number from the vendor.", default=None, max_length=128)
    boot_mac_address: str = described("MAC address of the interface that boots.", pattern=MAC_PATTERN)
    oob_mac_address: str | None = described("MAC address of the out-of-band port.", default=None, pattern=MAC_PATTERN)
    bmc: BMC | None = described("The card's own BMC.", default=None)
    node_pool_ref: str | None = described("NodePool whose image it boots.", default=None, pattern=NAME_PATTERN, max_length=63)
    acceptance: Acceptance = described("Whether the card may boot.", default="Pending", server_default="Pending")
    mode: Literal["DPU"] = described(
        "Operating mode. Cards in NIC mode have no Arm system and cannot be provisioned.", default="DPU", server_default="DPU"
    )


@dataclass(frozen=True, kw_only=True)
class DPUStatus:
    """What is known of a DPU."""

    conditions: tuple[Condition, ...] = described("Observations.", default=(), list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class DPU(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="DPU",
        plural="dpus",
        short="dpu",
        description="A BlueField card in a Server; an arm64 machine of its own.",
        columns=(
            Column("Server", ".spec.serverRef"),
            Column("MAC", ".spec.bootMACAddress"),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(Rule("self.metadata.name.size() <= 63", "a DPU's name is also its Node's name: at most 63 characters"),),
    )
    metadata: ObjectMeta
    spec: DPUSpec
    status: DPUStatus = DPUStatus()
