"""What firmware says of itself when it asks for an address, for each kind that is served."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

from provisioner.api.servers.server import Server
from provisioner.boot.dhcp.wire import options as opt

Firmware = Literal["bios", "x86_64-uefi", "arm64-uefi", "bios-http", "x86_64-uefi-http", "arm64-uefi-http"]
FIRMWARES: Final[tuple[Firmware, ...]] = get_args(Firmware)


_CLASSES: Final[Mapping[Firmware, tuple[bytes, int]]] = {
    "bios": (b"PXEClient:Arch:00000:UNDI:002001", 0),
    "x86_64-uefi": (b"PXEClient:Arch:00007:UNDI:003016", 7),
    "arm64-uefi": (b"PXEClient:Arch:00011:UNDI:003016", 11),
    "bios-http": (b"HTTPClient:Arch:00020:UNDI:002001", 20),
    "x86_64-uefi-http": (b"HTTPClient:Arch:00016:UNDI:003016", 16),
    "arm64-uefi-http": (b"HTTPClient:Arch:00019:UNDI:003016", 19),
}
"""Options 60 and 93."""


def usual_firmware(server: Server | None) -> Firmware:
    """The firmware that a server most probably has, by its spec; of an unknown machine x86_64-uefi."""
    if server is None:
        return "x86_64-uefi"
    bmc = server.spec.bmc
    by_http = bmc is not None and bmc.boot_method == "UefiHttp"
    if server.spec.architecture == "arm64":
        return "arm64-uefi-http" if by_http else "arm64-uefi"
    if bmc is not None and bmc.firmware == "BIOS":
        return "bios"
    return "x86_64-uefi-http" if by_http else "x86_64-uefi"


def firmware_options(firmware: Firmware) -> dict[int, bytes]:
    """Of the DISCOVER that the firmware sends."""
    vendor_class, architecture = _CLASSES[firmware]
    return {opt.VENDOR_CLASS: vendor_class, opt.CLIENT_ARCHITECTURE: architecture.to_bytes(2, "big")}


def ipxe_options(firmware: Firmware) -> dict[int, bytes]:
    """Of the DISCOVER that iPXE sends, started by that firmware."""
    return {**firmware_options(firmware), opt.USER_CLASS: b"iPXE"}
