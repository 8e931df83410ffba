"""What a BlueField card keeps over reboots: what its host may do with it, and settings of its firmware.

Declared on the DPU's Server (`spec.dpu`), compiled into its DPUNetwork (`spec.card`), and brought to the card by the
DPU's agent, which says there how it stands (`status.card`). Names and values are those of mstconfig (mlxconfig in MFT).
Source: Mellanox/mstflint, mlxconfig_host.db (names and values of settings) and mstprivhost.py (HOST_…).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from provisioner.api.machinery.rules import NAME_RULES
from provisioner.api.machinery.schema import CelRule, described, listed, optional

HostAccess = Literal["Restricted", "Privileged"]
CardState = Literal["Applied", "NeedsPowerCycle", "NotApplicable", "Failed"]


@dataclass(frozen=True)
class _Declarable:
    """Settings that can be declared, and the values that they may have, as a pattern and in words."""

    names: tuple[str, ...]
    values: str
    words: str

    def rule(self) -> CelRule:
        return CelRule(
            f"!(self.name in {list(self.names)}) || self.value.matches('^({self.values})$')",
            f"the value is none that is given to a card: write {self.words}",
            expression=f"'setting ' + self.name + ' is \\'' + self.value + '\\': write {self.words}'",
            field=".value",
        )


_KEPT: Final = "; with another value the card leaves DPU mode, or its switch becomes that of the host"
_DECLARABLE: Final = (
    _Declarable(
        ("DELAY_HOST_OS_INIT",),
        "[0-3]|DEVICE_DEFAULT|ENABLE|DISABLE|ENABLE_USER",
        "DEVICE_DEFAULT (0), ENABLE (1), DISABLE (2) or ENABLE_USER (3)",
    ),
    _Declarable(
        (
            *("EXP_ROM_PXE_ENABLE", "EXP_ROM_UEFI_ARM_ENABLE", "EXP_ROM_UEFI_x86_ENABLE", "UEFI_HII_EN", "SRIOV_EN"),
            *("KEEP_ETH_LINK_UP_P1", "KEEP_ETH_LINK_UP_P2", "KEEP_LINK_UP_ON_BOOT_P1", "KEEP_LINK_UP_ON_BOOT_P2"),
            *("KEEP_LINK_UP_ON_STANDBY_P1", "KEEP_LINK_UP_ON_STANDBY_P2"),
        ),
        "[01]|FALSE|TRUE",
        "TRUE (1) or FALSE (0)",
    ),
    _Declarable(("NUM_OF_VFS",), "[0-9]|[1-9][0-9]|1[01][0-9]|12[0-7]", "a whole number up to 127"),
    _Declarable(("LINK_TYPE_P1", "LINK_TYPE_P2"), "[12]|IB|ETH", "IB (1) or ETH (2)"),
    _Declarable(("INTERNAL_CPU_MODEL",), "1|EMBEDDED_CPU", f"EMBEDDED_CPU (1){_KEPT}"),
    _Declarable(("INTERNAL_CPU_OFFLOAD_ENGINE",), "0|ENABLED", f"ENABLED (0){_KEPT}"),
    _Declarable(
        ("INTERNAL_CPU_ESWITCH_MANAGER", "INTERNAL_CPU_PAGE_SUPPLIER", "INTERNAL_CPU_IB_VPORT0"),
        "0|ECPF",
        f"ECPF (0){_KEPT}",
    ),
    _Declarable(("ECPF_ESWITCH_MANAGER", "ECPF_PAGE_SUPPLIER"), "1|ECPF", f"ECPF (1){_KEPT}"),
)
"""All others are refused: among them are some by which the host gets the card back, some that keep card or server from
starting, and some that can damage it (ADVANCED_POWER_SETTINGS)."""

DECLARABLE_NAMES: Final = tuple(sorted(name for each in _DECLARABLE for name in each.names))
_OTHERWISE: Final = (
    f"write one of {', '.join(DECLARABLE_NAMES)}; what the host may do with the card is hostAccess, and others are set "
    "by hand on the DPU (mstconfig)"
)


@dataclass(frozen=True, kw_only=True)
class CardSetting:
    """A setting of the card's firmware."""

    RULES: ClassVar[tuple[CelRule, ...]] = tuple(each.rule() for each in _DECLARABLE)
    name: str = described(
        "Name, as mstconfig has it: DELAY_HOST_OS_INIT.",
        max_length=48,
        rules=(
            CelRule(
                f"self in {list(DECLARABLE_NAMES)}",
                f"no such setting is given to a card: {_OTHERWISE}",
                expression=f"'setting \\'' + self + '\\' is none that is given to a card: {_OTHERWISE}'",
            ),
        ),
    )
    value: str = described(
        "Value: a whole number, or the word that mstconfig has for it: '1', TRUE, ENABLED.", min_length=1, max_length=40
    )


@dataclass(frozen=True, kw_only=True)
class CardConfiguration:
    """What the DPU's agent brings its card to. What is absent here stays as it is."""

    server: str = described(
        "Server in which the card sits, whose power is the card's.", max_length=63, rules=NAME_RULES
    )
    host_access: HostAccess | None = optional("What the host may do with the card.")
    settings: tuple[CardSetting, ...] = listed("Settings, sorted.", max_items=64, list_map_keys=("name",))


@dataclass(frozen=True, kw_only=True)
class CardDifference:
    """A setting that is not in force as it was declared."""

    device: str = described("PCI address of the card.", max_length=16)
    name: str = described("Name, as mstconfig has it.", max_length=48)
    wanted: str = described("What was declared.", max_length=40)
    stored: str | None = optional(
        "What the card begins with when its power comes back; absent where it does not say.", max_length=64
    )
    in_force: str | None = optional("What it does now; absent where it does not say.", max_length=64)


@dataclass(frozen=True, kw_only=True)
class CardStatus:
    """How the card stands to what was declared. The words are in the condition CardConfigured."""

    state: CardState = described(
        "Applied: the card says that it is in force. NeedsPowerCycle: it is stored, and not known to be in force. "
        "NotApplicable: there is no such card in this machine. Failed: the card was not brought to it, or cannot be "
        "read."
    )
    differences: tuple[CardDifference, ...] = listed(
        "Settings that are not known to be in force as declared, the first ones.", max_items=32
    )


def find_refusal(setting: CardSetting) -> str | None:
    """Why a setting is not to be given to a card, as the rules above say it; None if it is."""
    declarable = next((each for each in _DECLARABLE if setting.name in each.names), None)
    if declarable is None:
        return f"setting {setting.name!r} is none that this agent gives to a card"
    if re.fullmatch(declarable.values, setting.value) is None:
        return f"setting {setting.name} is {setting.value!r}, where this agent expects {declarable.words}"
    return None
