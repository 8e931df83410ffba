"""DPU: a BlueField card in a Server; an arm64 machine of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.ip_rules import FUNCTION_RULES, TENANT_RULES, VTEP_RULES
from provisioner.api.meta import ObjectMeta, Resource
from provisioner.api.rules import LABEL_PATTERN, MAC_RULES, NAME_RULES, PRINTABLE_RULES
from provisioner.api.schema import Column, Kind, Rule, described
from provisioner.api.server import BMC, Acceptance


@dataclass(frozen=True, kw_only=True)
class DPUFunction:
    """A function of the card, physical or virtual, that differs from what holds for the server."""

    name: str = described("Function: pf0, or pf0vf3.", max_length=8, rules=FUNCTION_RULES)
    tenant: str | None = described(
        "Namespace whose VPCs it may be attached to; the server's tenant if absent.",
        default=None,
        max_length=63,
        rules=TENANT_RULES,
    )
    quarantined: bool | None = described(
        "Whether nothing of it may pass: its tenant cannot lift it. For the whole server: its networkQuarantined.",
        default=None,
    )
    mac_address: str | None = described(
        "MAC address that the host sees on it; if absent, the server's boot MAC address on pf0, and one made of the "
        "names of card and function on others.",
        default=None,
        max_length=32,
        rules=MAC_RULES,
    )


@dataclass(frozen=True, kw_only=True)
class DPUSpec:
    """What is registered about a DPU."""

    server_ref: str = described("Server in which the card sits.", max_length=63, rules=NAME_RULES)
    serial_number: str | None = described(
        "Serial number from the vendor.", default=None, max_length=128, rules=PRINTABLE_RULES
    )
    boot_mac_address: str = described("MAC address of the interface that boots.", max_length=32, rules=MAC_RULES)
    oob_mac_address: str | None = described(
        "MAC address of the out-of-band port.", default=None, max_length=32, rules=MAC_RULES
    )
    bmc: BMC | None = described("The card's own BMC.", default=None)
    node_pool_ref: str | None = described(
        "NodePool whose image it boots.", default=None, max_length=63, rules=NAME_RULES
    )
    vtep_address: str | None = described(
        "Address of the card on the underlay, from which its tunnels leave; no two cards have the same. Without one "
        "nothing of its server can be attached.",
        default=None,
        max_length=15,
        rules=VTEP_RULES,
    )
    functions: tuple[DPUFunction, ...] = described(
        "Functions of which something else holds than of the server.",
        default=(),
        max_items=256,
        list_map_keys=("name",),
    )
    acceptance: Acceptance = described("Whether the card may boot.", default="Pending", server_default="Pending")
    mode: Literal["DPU", "NIC"] = described(
        "Operating mode. Cards in NIC mode have no Arm system, cannot be provisioned and are refused.",
        default="DPU",
        server_default="DPU",
        rules=(
            Rule(
                "self != 'NIC'",
                "a card in NIC mode has no Arm system to provision: switch it to DPU mode "
                "(mlxconfig -d DEVICE set INTERNAL_CPU_OFFLOAD_ENGINE=0, then a cold power cycle) "
                "and register it with mode DPU",
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class DPUStatus:
    """Nothing is observed of it: no controller follows DPUs."""


@dataclass(frozen=True, kw_only=True)
class DPU(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="DPU",
        plural="dpus",
        short="dpu",
        description="A BlueField card in a Server, an arm64 machine of its own; registered, and not booted yet.",
        columns=(
            Column("Server", ".spec.serverRef"),
            Column("MAC", ".spec.bootMACAddress"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            Rule("self.metadata.name.size() <= 63", "a DPU's name is also its Node's name: at most 63 characters"),
            Rule(
                f"self.metadata.name.matches('{LABEL_PATTERN}')",
                "a DPU's name is also its host name: no dots",
                expression="'a DPU\\'s name is also its host name, which has no dots: write ' + "
                "self.metadata.name.replace('.', '-')",
            ),
        ),
        selectable=(".spec.serverRef", ".spec.bootMACAddress"),
    )
    metadata: ObjectMeta
    spec: DPUSpec
    status: DPUStatus = DPUStatus()
