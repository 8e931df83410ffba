"""Which kind of client asks: plain operating system, firmware by PXE or HTTP, or iPXE; and for which processor.

Sources: RFC 4578 (option 93), IANA "Processor Architecture Types", RFC 5970, EDK2, iPXE, NVIDIA BlueField boot classes.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final


class DhcpClient(IntEnum):
    """What is asking, and so which boot options it is told. The numbers index templates."""

    PLAIN = 0
    """An operating system that wants an address and nothing else."""
    IPXE = 1
    BIOS_PXE = 2
    X64_PXE = 3
    ARM64_PXE = 4
    BIOS_HTTP = 5
    X64_HTTP = 6
    ARM64_HTTP = 7
    UNSUPPORTED = 8
    """Firmware of a processor for which there is no first stage (32-bit x86 UEFI, arm32…): an address only."""


_BIOS: Final = "bios"
_X64: Final = "x64"
_ARM64: Final = "arm64"
_OTHER: Final = "other"

_MACHINE: Final[dict[int, str]] = {
    0: _BIOS,
    7: _X64,
    9: _X64,  # EBC; some firmware means x64 by it
    11: _ARM64,
    16: _X64,
    17: _X64,  # EBC by HTTP, as 9
    19: _ARM64,
    20: _BIOS,
}
_HTTP_ARCHITECTURES: Final = frozenset(range(15, 21))
_BY_PXE: Final = {_BIOS: DhcpClient.BIOS_PXE, _X64: DhcpClient.X64_PXE, _ARM64: DhcpClient.ARM64_PXE}
_BY_HTTP: Final = {_BIOS: DhcpClient.BIOS_HTTP, _X64: DhcpClient.X64_HTTP, _ARM64: DhcpClient.ARM64_HTTP}
_ARCH_IN_CLASS: Final = re.compile(rb"^(?:PXE|HTTP)Client:Arch:(\d{5})")


@lru_cache(maxsize=256)
def identify(vendor_class: bytes | None, architecture: bytes | None, user_class: bytes | None) -> DhcpClient:
    """Tell a client by its options 60, 93 and 77. Remembered, as a rack of equal servers says only a few."""
    if is_ipxe(user_class):
        return DhcpClient.IPXE
    vendor = vendor_class or b""
    if not vendor.startswith((b"PXEClient", b"HTTPClient", b"NVIDIA/BF/PXE", b"BF2Client")):
        # Among them NVIDIA/BF/OOB, NVIDIA/BF/DP (the BlueField's Arm system) and NVIDIA/BF/BMC.
        return DhcpClient.PLAIN
    number = _architecture_number(vendor, architecture)
    if number is not None:
        machine = _MACHINE.get(number, _OTHER)
    else:
        # BlueField firmware leaves option 93 out at times. Any other ROM that old is a BIOS one (PXE 2.1).
        machine = _ARM64 if vendor.startswith((b"NVIDIA/BF/", b"BF2Client")) else _BIOS
    # The class decides where it names the transport: `HTTPClient:Arch:00011` is seen in the wild, with the number of
    # the PXE twin. It must decide, as the answer has to echo the class.
    by_http = vendor.startswith(b"HTTPClient") or (
        number in _HTTP_ARCHITECTURES and not vendor.startswith(b"PXEClient")
    )
    clients = _BY_HTTP if by_http else _BY_PXE
    return clients.get(machine, DhcpClient.UNSUPPORTED)


def is_ipxe(user_class: bytes | None) -> bool:
    """iPXE sends option 77 as a bare string; RFC 3004 wants a length before each class. Both are understood."""
    if not user_class:
        return False
    if user_class == b"iPXE":
        return True
    at = 0
    while at < len(user_class):
        length = user_class[at]
        if length == 4 and user_class[at + 1 : at + 5] == b"iPXE":
            return True
        at += 1 + length
    return False


def _architecture_number(vendor: bytes, architecture: bytes | None) -> int | None:
    """First architecture of option 93 that is served here, else its first, else the number in the vendor class."""
    if architecture and len(architecture) >= 2:
        numbers = [int.from_bytes(architecture[at : at + 2], "big") for at in range(0, len(architecture) - 1, 2)]
        return next((number for number in numbers if number in _MACHINE), numbers[0])
    found = _ARCH_IN_CLASS.match(vendor)
    return int(found[1]) if found else None
