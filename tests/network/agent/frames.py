"""Frames, byte by byte: what a host may send, and what it must not get past its port."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

from lab.virtual_network.echo import internet_checksum
from provisioner.network.agent.model.naming import GATEWAY_MAC, solicited_node

BROADCAST = "ff:ff:ff:ff:ff:ff"


def mac_bytes(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def ethernet(source: str, kind: int, payload: bytes, to: str = GATEWAY_MAC, tags: tuple[int, ...] = ()) -> bytes:
    """`tags`: ethertypes of VLAN tags before the frame's own."""
    tagged = b"".join(struct.pack("!HH", tag, 7) for tag in tags)
    return mac_bytes(to) + mac_bytes(source) + tagged + struct.pack("!H", kind) + payload.ljust(46, b"\0")


def arp(
    source: str,
    sender_ip: str,
    target_ip: str,
    *,
    sender_mac: str | None = None,
    operation: int = 1,
    to: str = BROADCAST,
) -> bytes:
    body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation)
    body += mac_bytes(sender_mac or source) + IPv4Address(sender_ip).packed + bytes(6) + IPv4Address(target_ip).packed
    return ethernet(source, 0x0806, body, to)


def ipv4(
    source: str, sender: str, target: str, payload: bytes | None = None, protocol: int = 17, to: str = GATEWAY_MAC,
    tags: tuple[int, ...] = (),
) -> bytes:  # fmt: skip
    payload = udp(1000, 1000) if payload is None else payload
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), 1, 0, 64, protocol, 0)
    addresses = IPv4Address(sender).packed + IPv4Address(target).packed
    checksum = internet_checksum(head + addresses)
    return ethernet(source, 0x0800, head[:10] + struct.pack("!H", checksum) + addresses + payload, to, tags)


def ipv6(
    source: str, sender: str, target: str, payload: bytes | None = None, protocol: int = 17, to: str = GATEWAY_MAC,
    hop_limit: int = 64,
) -> bytes:  # fmt: skip
    payload = udp(1000, 1000) if payload is None else payload
    head = struct.pack("!IHBB", 6 << 28, len(payload), protocol, hop_limit)
    return ethernet(source, 0x86DD, head + IPv6Address(sender).packed + IPv6Address(target).packed + payload, to)


def udp(source_port: int, target_port: int) -> bytes:
    return struct.pack("!HHHH", source_port, target_port, 12, 0) + b"test"


def icmp(kind: int, code: int = 0, body: bytes = bytes(8)) -> bytes:
    """Without a checksum: a filter does not look at it."""
    return struct.pack("!BBH", kind, code, 0) + body


def solicitation(
    source: str, sender: str, target: str, *, option_mac: str | None = None, hop_limit: int = 255, kind: int = 135,
    has_option: bool = True, more: bytes = b"",
) -> bytes:  # fmt: skip
    """A neighbour solicitation for `target`, or, with another `kind`, something of that shape."""
    option = b"\1\1" + mac_bytes(option_mac or source) if has_option else b""
    group, to = solicited_node(target)
    body = icmp(kind, 0, bytes(4) + IPv6Address(target).packed + option + more)
    return ipv6(source, sender, group, body, 58, to, hop_limit)
