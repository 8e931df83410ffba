"""What was learnt of a machine from its packets: the worker's terse form, and the one that the service is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple
from uuid import UUID

from provisioner.api.server import Architecture
from provisioner.api.values import MacAddress
from provisioner.boot.dhcp.subnet import SubnetKey

SightingKind = Literal["Firmware", "IPXE", "System", "Declined", "WrongSubnet"]
"""Firmware and IPXE: that stage asked for an address. System: an unknown machine's operating system did.
Declined: a registered server found its address in use. WrongSubnet: it asked in a subnet that is not its own."""


class Sighting(NamedTuple):
    """One machine in one exchange, as a worker saw it."""

    mac: bytes
    xid: bytes
    kind: SightingKind
    address: bytes | None
    subnet: SubnetKey
    architecture: Architecture | None
    machine_identifier: bytes
    vendor_class: bytes


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
    architecture: Architecture | None
    system_uuid: str | None
    vendor_class: str | None
    time: float
    """Seconds since the epoch."""


def observe(sighting: Sighting, server: str | None, time: float) -> Observation:
    """The service's form of a sighting."""
    return Observation(
        mac_address=MacAddress(sighting.mac.hex(":")),
        kind=sighting.kind,
        server=server,
        rack=sighting.subnet[0],
        subnet=sighting.subnet[1],
        address=".".join(map(str, sighting.address)) if sighting.address else None,
        architecture=sighting.architecture,
        system_uuid=read_machine_identifier(sighting.machine_identifier),
        vendor_class=sighting.vendor_class.decode("ascii", "backslashreplace") or None,
        time=time,
    )


def read_machine_identifier(value: bytes) -> str | None:
    """Option 97 as SMBIOS shows it, lower case: a type byte 0, then the UUID, its first three fields little endian."""
    if len(value) != 17 or value[0] != 0 or not any(value[1:]):
        return None
    return str(UUID(bytes_le=value[1:]))
