"""The part of a reply that is the same for every server of a subnet, encoded once when the inventory changes.

What differs from server to server is an address and a few fields that are copied from the request, so ten thousand
reservations share the templates of their subnet, and a changed reservation costs four bytes.
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from provisioner.boot.dhcp.model.config import DISCOVERY_LEASE_SECONDS, LEASE_SECONDS, DhcpConfig
from provisioner.boot.dhcp.model.subnet import ServedSubnet
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient
from provisioner.boot.tftp.firmware import ARM64_FILE, BIOS_FILE, X64_FILE


class ReplyKind(IntEnum):
    """What is said. The numbers index templates."""

    OFFER = 0
    ACK = 1
    OFFER_LENT = 2
    """To an unknown machine, for minutes: it comes back soon, and finds its own address once somebody accepts it."""
    ACK_LENT = 3
    INFORM_ACK = 4


class ReplyTemplate(NamedTuple):
    """Everything of a reply from `siaddr` on but `giaddr` and `chaddr`, which stand between the first two parts."""

    siaddr: bytes
    tail: bytes
    """sname, file, cookie and options, without END."""
    complete: bytes
    """The same with END and padded: what is sent when the request has nothing to echo."""


_MESSAGE: Final = {
    ReplyKind.OFFER: opt.OFFER,
    ReplyKind.ACK: opt.ACK,
    ReplyKind.OFFER_LENT: opt.OFFER,
    ReplyKind.ACK_LENT: opt.ACK,
    ReplyKind.INFORM_ACK: opt.ACK,
}
_FILES: Final = {
    DhcpClient.BIOS_PXE: BIOS_FILE,
    DhcpClient.BIOS_HTTP: BIOS_FILE,
    DhcpClient.X64_PXE: X64_FILE,
    DhcpClient.X64_HTTP: X64_FILE,
    DhcpClient.ARM64_PXE: ARM64_FILE,
    DhcpClient.ARM64_HTTP: ARM64_FILE,
}
_BY_HTTP: Final = frozenset({DhcpClient.BIOS_HTTP, DhcpClient.X64_HTTP, DhcpClient.ARM64_HTTP})
_BEFORE_TAIL: Final = 44
"""Bytes of a message before `sname`."""

Templates = tuple[tuple[ReplyTemplate, ...], ...]
"""By ReplyKind, then by DhcpClient."""


def build_templates(subnet: ServedSubnet, config: DhcpConfig) -> Templates:
    """All templates of a subnet."""
    return tuple(tuple(_build(kind, client, subnet, config) for client in DhcpClient) for kind in ReplyKind)


def _build(kind: ReplyKind, client: DhcpClient, subnet: ServedSubnet, config: DhcpConfig) -> ReplyTemplate:
    server = IPv4Address(config.server_address).packed
    sname, file, boot = _boot(client, config)
    written = b"".join(
        (
            opt.encode_option(opt.MESSAGE_TYPE, bytes((_MESSAGE[kind],))),
            opt.encode_option(opt.SERVER_IDENTIFIER, server),
            _lease(kind),
            _network(client, subnet),
            boot,
        )
    )
    tail = sname.ljust(64, b"\0") + file.ljust(128, b"\0") + opt.MAGIC_COOKIE + written
    siaddr = bytes(4) if client in (DhcpClient.PLAIN, DhcpClient.UNSUPPORTED) else server
    return ReplyTemplate(siaddr, tail, finish(tail))


def finish(tail: bytes) -> bytes:
    """`tail` with END, padded so that the whole message has BOOTP's minimum size."""
    return (tail + b"\xff").ljust(opt.MINIMUM_REPLY_BYTES - _BEFORE_TAIL, b"\0")


def _lease(kind: ReplyKind) -> bytes:
    if kind is ReplyKind.INFORM_ACK:
        return b""  # RFC 2131, section 4.3.5: no lease time in the answer to an INFORM
    lent = kind in (ReplyKind.OFFER_LENT, ReplyKind.ACK_LENT)
    seconds = DISCOVERY_LEASE_SECONDS if lent else LEASE_SECONDS
    return (
        opt.encode_seconds(opt.LEASE_TIME, seconds)
        + opt.encode_seconds(opt.RENEWAL_TIME, seconds // 2)
        + opt.encode_seconds(opt.REBINDING_TIME, seconds * 7 // 8)
    )


def _network(client: DhcpClient, subnet: ServedSubnet) -> bytes:
    written = [opt.encode_option(opt.SUBNET_MASK, subnet.mask.to_bytes(4, "big"))]
    if subnet.gateway:
        written.append(opt.encode_option(opt.ROUTER, subnet.gateway))
    if subnet.dns_servers:
        written.append(opt.encode_option(opt.DNS_SERVERS, subnet.dns_servers))
    broadcast = subnet.network | (~subnet.mask & 0xFFFFFFFF)
    written.append(opt.encode_option(opt.BROADCAST_ADDRESS, broadcast.to_bytes(4, "big")))
    if client is DhcpClient.PLAIN:
        # Firmware and iPXE have no use for these; a jumbo MTU is more than some of their drivers can receive.
        if subnet.ntp_servers:
            written.append(opt.encode_option(opt.NTP_SERVERS, subnet.ntp_servers))
        if subnet.mtu_bytes:
            written.append(opt.encode_option(opt.INTERFACE_MTU, subnet.mtu_bytes.to_bytes(2, "big")))
    return b"".join(written)


def _boot(client: DhcpClient, config: DhcpConfig) -> tuple[bytes, bytes, bytes]:
    """`sname`, `file` and the options that say what to boot."""
    if client is DhcpClient.IPXE:
        # A URL instead of iPXE again breaks the loop; the hint saves iPXE's wait for a proxyDHCP server.
        script = opt.encode_text(opt.BOOT_FILE, config.script.encode())
        return b"", b"", script + opt.encode_option(opt.IPXE, opt.NO_PXE_DHCP)
    name = _FILES.get(client)
    if name is None:
        return b"", b"", b""
    if client in _BY_HTTP:
        # UEFI ignores an offer that does not echo the class (UEFI 2.10, section 24.7.3.1).
        echoed = opt.encode_text(opt.VENDOR_CLASS, b"HTTPClient")
        return b"", b"", echoed + opt.encode_text(opt.BOOT_FILE, config.firmware(name).encode())
    # PXE: neither option 60 nor 43. With 60 alone EDK2 asks a boot server at UDP 4011 and fails; with 43 (discovery
    # control 8) some ROMs show a menu or mis-chainload. Without both, every ROM takes the offer as plain BOOTP:
    # next server and file, which is all there is to say. BIOS ROMs read the fields, UEFI the options.
    # There is nothing here, nor at the TFTP server, that offers `windowsize`: with loss EDK2 floods the network.
    file, server = name.encode(), config.server_address.encode()
    named = opt.encode_text(opt.TFTP_SERVER_NAME, server) + opt.encode_text(opt.BOOT_FILE, file)
    return server, file, named
