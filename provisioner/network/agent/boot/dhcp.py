"""What a host is answered by DHCP where it boots through its DPU. Pure.

Firmware and iPXE get the host's address on the boot network and what to load; an operating system gets the address of
its VPC, if its port is in one. Who asks is told by what it says of itself (options 60, 77, 93), which nobody but the
host can say here: both are its own addresses. To every address beside its own the way is the DPU, so that mask and
router only have to be such that the client takes them.
Source: RFC 2131, RFC 4578, UEFI 2.10 section 24.7.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from provisioner.network.agent.boot.plane import BootingHost, BootServices
from provisioner.network.agent.dhcp import wire
from provisioner.network.agent.dhcp.answer import BROADCAST, kind_of_answer, refusal
from provisioner.network.agent.dhcp.answer import answer as answer_of_vpc
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.wire import NO_ADDRESS, HostMessage, MessageType, Reply

LEASE_SECONDS: Final = 3600
_X64, _ARM64, _BIOS = "snponly.efi", "ipxe-arm64.efi", "undionly.kpxe"
_FILES: Final = {0: _BIOS, 7: _X64, 9: _X64, 11: _ARM64, 16: _X64, 17: _X64, 19: _ARM64, 20: _BIOS}
"""By option 93; 15 to 20 are those of firmware that boots by HTTP. Source: IANA, Processor Architecture Types."""
_BY_HTTP: Final = range(15, 21)
_ARCHITECTURE: Final = re.compile(rb"(?:PXE|HTTP)Client:Arch:([0-9]{5})")
_IPXE_OPTIONS: Final = 175, bytes((0xB0, 1, 1))  # no-pxedhcp: do not wait for a proxyDHCP server


@dataclass(frozen=True)
class Loads:
    """What firmware or iPXE is told to load: the file by TFTP, or a URL. echo: the class that HTTP boot insists on."""

    file: str
    is_url: bool = False
    options: tuple[tuple[int, bytes], ...] = ()


def answer(request: HostMessage, host: BootingHost, services: BootServices, port: ServedPort | None) -> Reply | None:
    """None: silence. `port`: the host's in its VPC. All goes by broadcast: the plane knows no other way to the host
    than its boot address."""
    if request.mac != host.mac:
        return None
    loads = what_it_loads(request, services)
    if loads is None:
        told = answer_of_vpc(request, port) if port is not None else None
        return replace(told, to=BROADCAST) if told is not None else None
    _, router = network_of(host.address)
    kind = kind_of_answer(request, router, host.address)
    if kind is MessageType.NAK:
        return refusal(request, router)
    return _gives(kind, request, host, services, loads) if kind is not None else None


def what_it_loads(request: HostMessage, services: BootServices) -> Loads | None:
    """None: it is an operating system that asks."""
    if _is_ipxe(request.user_class):
        return Loads(f"http://{services.boot_host}/boot.ipxe", True, (_IPXE_OPTIONS,))
    vendor = request.vendor_class
    if not vendor.startswith((b"PXEClient", b"HTTPClient")):
        return None
    said = _ARCHITECTURE.match(vendor)
    number = int.from_bytes(request.architecture[:2], "big") if len(request.architecture) >= 2 else None
    number = number if number is not None else int(said[1]) if said else 0
    file = _FILES.get(number)
    if file is None:
        return Loads("")
    if vendor.startswith(b"HTTPClient") or (number in _BY_HTTP and not vendor.startswith(b"PXEClient")):
        return Loads(f"http://{services.boot_host}/tftp/{file}", True, ((wire.VENDOR_CLASS, b"HTTPClient"),))
    return Loads(file, options=((wire.TFTP_SERVER_NAME, str(services.boot_host).encode()),))


def network_of(address: IPv4Address) -> tuple[IPv4Network, IPv4Address]:
    """A subnet, a /24 or larger, in which `address` is neither the first nor the last; and a router in it."""
    for length in range(24, 0, -1):
        network = IPv4Network((int(address) >> (32 - length) << (32 - length), length))
        if address not in (network.network_address, network.broadcast_address):
            break
    first = network.network_address + 1
    return network, first if first != address else first + 1


def _gives(kind: MessageType, request: HostMessage, host: BootingHost, services: BootServices, loads: Loads) -> Reply:
    network, router = network_of(host.address)
    options: list[tuple[int, bytes]] = [
        (wire.SERVER_IDENTIFIER, router.packed),
        (wire.LEASE_TIME, struct.pack("!I", LEASE_SECONDS)),
        (wire.SUBNET_MASK, network.netmask.packed),
        (wire.ROUTER, router.packed),
        *loads.options,
    ]
    if loads.file:
        options.append((wire.BOOT_FILE, loads.file.encode()))
    return Reply(
        kind=kind,
        request=request,
        to=BROADCAST,
        gives=host.address,
        options=tuple(options),
        next_server=services.boot_host if loads.file else NO_ADDRESS,
        file=b"" if loads.is_url else loads.file.encode(),
    )


def _is_ipxe(user_class: bytes) -> bool:
    """As a bare string, as iPXE sends it, or as one of several, each behind its length (RFC 3004)."""
    return user_class == b"iPXE" or b"\x04iPXE" in user_class
