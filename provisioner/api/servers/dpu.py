"""What makes a Server a DPU: it is a BlueField card in another Server, an arm64 machine of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from provisioner.api.machinery.rules import MAC_RULES, NAME_RULES
from provisioner.api.machinery.schema import CelRule, described, listed, optional
from provisioner.api.network.card import CardSetting, HostAccess
from provisioner.api.network.ip_rules import FUNCTION_RULES, TENANT_RULES, VTEP_RULES


@dataclass(frozen=True, kw_only=True)
class DPUFunction:
    """A function of the card, physical or virtual, that differs from what holds for the host."""

    name: str = described("Function: pf0, or pf0vf3.", max_length=8, rules=FUNCTION_RULES)
    tenant: str | None = optional(
        "Namespace whose VPCs it may be attached to; the host's tenant if absent.", max_length=63, rules=TENANT_RULES
    )
    quarantined: bool | None = optional(
        "Whether nothing of it may pass: its tenant cannot lift it. For the whole host: its networkQuarantined."
    )
    mac_address: str | None = optional(
        "MAC address that the host sees on it; if absent, the host's boot MAC address on pf0, and one made of the "
        "names of card and function on others.",
        max_length=32,
        rules=MAC_RULES,
    )


@dataclass(frozen=True, kw_only=True)
class DPU:
    """What is registered of the card, beside what is of every machine."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "has(self.vtepAddress) || !has(self.hostAccess) && (!has(self.settings) || self.settings.size() == 0)",
            "hostAccess and settings are told to the card by its DPUNetwork, which it has none of without an address "
            "on the underlay: set spec.dpu.vtepAddress as well",
        ),
    )
    host_ref: str = described("Server in which the card sits.", max_length=63, rules=NAME_RULES)
    vtep_address: str | None = optional(
        "Address of the card on the underlay, from which its tunnels leave; no two cards have the same. Without one "
        "the card has no DPUNetwork: nothing of its host can be attached, and the host cannot boot through it.",
        max_length=15,
        rules=VTEP_RULES,
    )
    functions: tuple[DPUFunction, ...] = listed(
        "Functions of which something else holds than of the host.", max_items=256, list_map_keys=("name",)
    )
    host_boot: Literal["Direct", "Proxied"] = described(
        "How the host boots and joins. Direct: by its own address on the boot network. Proxied: the card answers its "
        "DHCP, TFTP and HTTP, fetches for it, and passes its join on; a join that comes in another way is refused.",
        default="Direct",
    )
    host_access: HostAccess | None = optional(
        "What root on the host may do with the card. Restricted: neither change nor flash it, nor reach its Arm system "
        "by rshim (mstprivhost, mlxprivhost in MFT). Privileged: all of that. If absent the card stays as it is."
    )
    settings: tuple[CardSetting, ...] = listed(
        "Settings of the card's firmware (mstconfig, mlxconfig in MFT); others stay as they are, and so does one that "
        "is taken out of this list.",
        max_items=64,
        list_map_keys=("name",),
    )
    mode: Literal["DPU", "NIC"] = described(
        "Operating mode. Cards in NIC mode have no Arm system, cannot be provisioned and are refused.",
        server_default="DPU",
        rules=(
            CelRule(
                "self != 'NIC'",
                "a card in NIC mode has no Arm system to provision: switch it to DPU mode "
                "(mlxconfig -d DEVICE set INTERNAL_CPU_OFFLOAD_ENGINE=0, then a cold power cycle) "
                "and register it with mode DPU",
            ),
        ),
    )
