"""What a BMC's boot override means for the next boot. Pure. Source: DMTF DSP2046, ComputerSystem v1.20, `Boot`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from lab.machine.machine import NETWORK_BOOT, BootPlan, Firmware

Enabled = Literal["Disabled", "Once", "Continuous"]
Target = Literal["None", "Pxe", "Hdd", "UefiHttp"]


@dataclass(frozen=True, kw_only=True)
class BootOverride:
    """The `Boot` object of a system. A new one changes nothing."""

    enabled: Enabled = "Disabled"
    target: Target = "None"
    http_boot_uri: str | None = None


class PropertyRefusedError(Exception):
    """A property of a PATCH is not acceptable; the arguments are the message's id, its text and the property."""

    def __init__(self, message_id: str, message: str, property_path: str) -> None:
        super().__init__(message)
        self.message_id = message_id
        self.property_path = property_path


def allowed_targets(firmware: Firmware) -> tuple[Target, ...]:
    """A BIOS machine cannot do UEFI HTTP boot."""
    return tuple(target for target in get_args(Target) if firmware == "UEFI" or target != "UefiHttp")


def next_boot(override: BootOverride) -> tuple[BootPlan, BootOverride]:
    """What the machine boots from now, and the override that is left afterwards: Once is spent by one boot."""
    if override.enabled == "Disabled" or override.target == "None":
        plan = NETWORK_BOOT
    elif override.target == "UefiHttp":
        plan = BootPlan(source="UefiHttp", http_boot_uri=override.http_boot_uri)
    else:
        plan = BootPlan(source=override.target)
    return plan, BootOverride() if override.enabled == "Once" else override


def patch_override(override: BootOverride, boot: Mapping[str, Any], firmware: Firmware) -> BootOverride:
    """`override` after a PATCH of `Boot`; what the PATCH does not name stays. Raises: PropertyRefusedError."""
    allowed: dict[str, tuple[object, ...]] = {
        "BootSourceOverrideEnabled": get_args(Enabled),
        "BootSourceOverrideTarget": allowed_targets(firmware),
        "BootSourceOverrideMode": ("UEFI" if firmware == "UEFI" else "Legacy",),
    }
    for name, value in boot.items():
        if name == "HttpBootUri":
            if value not in (None, "") and not (isinstance(value, str) and value.startswith(("http://", "https://"))):
                raise PropertyRefusedError(
                    "PropertyValueFormatError",
                    f"The value {value!r} of HttpBootUri is not an HTTP URL.",
                    "Boot/HttpBootUri",
                )
        elif name not in allowed:
            raise PropertyRefusedError(
                "PropertyUnknown", f"The property {name} is not in the list of valid properties.", f"Boot/{name}"
            )
        elif value not in allowed[name]:
            raise PropertyRefusedError(
                "PropertyValueNotInList",
                f"The value {value!r} for the property {name} is not in the list of acceptable values.",
                f"Boot/{name}",
            )
    return BootOverride(
        enabled=boot.get("BootSourceOverrideEnabled", override.enabled),
        target=boot.get("BootSourceOverrideTarget", override.target),
        http_boot_uri=(boot["HttpBootUri"] or None) if "HttpBootUri" in boot else override.http_boot_uri,
    )


def override_to_json(override: BootOverride) -> dict[str, Any]:
    """For the emulator's own state file."""
    return asdict(override)


def override_from_json(data: Mapping[str, Any]) -> BootOverride:
    return BootOverride(**data)
