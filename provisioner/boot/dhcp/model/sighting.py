"""What was learnt of a machine from its packets: the worker's terse form, and the one that the service is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from provisioner.api.machinery.values import MacAddress
from provisioner.boot.dhcp.model.subnet import SubnetKey

SightingKind = Literal["Firmware", "IPXE", "System", "Declined", "WrongSubnet", "InfiniBand"]
"""Firmware and IPXE: that stage asked for an address. System: an unknown machine's operating system did.
Declined: a registered server found its address in use. WrongSubnet: it asked in a subnet that is not its own.
InfiniBand: an IPoIB client asked, which is not served and has no MAC address."""

_NVIDIA_PXE: Final = bytes.fromhex("ff00000000000200 0002c900")
"""What a boot ROM of NVIDIA puts before its port's GUID in option 61."""
_BY_HARDWARE_TYPE: Final = b"\x20"
"""What it puts there with "DHCP Client-Id HW Type IB" set, and iPXE always."""
_LINK_LAYER_DUIDS: Final = (b"\x00\x01\x00\x20", b"\x00\x03\x00\x20")
"""DUID-LLT and DUID-LL of an InfiniBand port (RFC 4361, RFC 4390): they end in its address, and that in its GUID."""


class Sighting(NamedTuple):
    """One machine in one exchange, as a worker saw it."""

    mac: bytes
    xid: bytes
    kind: SightingKind
    address: bytes | None
    subnet: SubnetKey
    client_identifier: bytes | None = None
    """Of an IPoIB client alone, which has no MAC address: its `mac` is zeros."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What DHCP tells the boot service. All but `server`, `rack` and `subnet` is the machine's own word, unproven."""

    mac_address: MacAddress
    kind: SightingKind
    server: str | None
    """Name of the registered server with this MAC address; None for an unknown machine."""
    rack: str
    subnet: str
    """Where the packet came from: the first subnet of that network."""
    address: str | None
    """What the machine was offered or given; None if nothing."""
    client_identifier: str | None = None
    """An IPoIB client's: `GUID 0x0002c903000e0b72`, or what it sent, where that names no GUID."""


def observe(sighting: Sighting, server: str | None) -> Observation:
    """The service's form of a sighting."""
    return Observation(
        mac_address=MacAddress(sighting.mac.hex(":")),
        kind=sighting.kind,
        server=server,
        rack=sighting.subnet[0],
        subnet=sighting.subnet[1],
        address=".".join(map(str, sighting.address)) if sighting.address else None,
        client_identifier=describe_identifier(sighting.client_identifier),
    )


def describe_identifier(identifier: bytes | None) -> str | None:
    """Who an IPoIB client says that it is: by its port's GUID, as `ibstat` shows it, where that can be told."""
    if identifier is None:
        return None
    has_guid = (
        len(identifier) == 8
        or (len(identifier) == 9 and identifier.startswith(_BY_HARDWARE_TYPE))
        or (len(identifier) >= 20 and (identifier.startswith(_NVIDIA_PXE) or identifier[5:9] in _LINK_LAYER_DUIDS))
    )
    return f"GUID 0x{identifier[-8:].hex()}" if has_guid else f"client identifier {identifier.hex(':') or 'none'}"
