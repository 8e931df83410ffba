"""DHCP packets: what a host sends, and the bytes of what it is answered. Source: RFC 2131, RFC 2132.

The boot hosts' codec (`boot/dhcp`) is not for here: the agent stands on the API's kinds and Python, and a boot host
must understand relays, firmware and old ROMs where here one host is at the other end of one cable. Read strictly: what
is not as it must be is no request. Options that a client has put into the fields `sname` and `file` (option 52) are not
read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address
from typing import Final

LONGEST_REQUEST: Final = 1500
"""In bytes. No client's is longer, and the work for one has to be bounded."""

SUBNET_MASK: Final = 1
ROUTER: Final = 3
INTERFACE_MTU: Final = 26
REQUESTED_ADDRESS: Final = 50
LEASE_TIME: Final = 51
MESSAGE_TYPE: Final = 53
SERVER_IDENTIFIER: Final = 54
RENEWAL_TIME: Final = 58
REBINDING_TIME: Final = 59
VENDOR_CLASS: Final = 60
CLIENT_IDENTIFIER: Final = 61
TFTP_SERVER_NAME: Final = 66
BOOT_FILE: Final = 67
USER_CLASS: Final = 77
CLIENT_ARCHITECTURE: Final = 93
MACHINE_IDENTIFIER: Final = 97
_MACHINE_IDENTIFIER_BYTES: Final = 17
_TEXTS: Final = frozenset((VENDOR_CLASS, TFTP_SERVER_NAME, BOOT_FILE))
_PAD, _END = 0, 255

NO_ADDRESS: Final = IPv4Address(0)
_HEADER: Final = struct.Struct("!4BI2H4s4s4s4s6s10x64x128s4s")
"""op, htype, hlen, hops; xid; secs, flags; ciaddr, yiaddr, siaddr, giaddr; chaddr; sname; file; the cookie."""
_REQUEST, _REPLY = 1, 2
_ETHERNET, _MAC_BYTES = 1, 6
_COOKIE: Final = b"\x63\x82\x53\x63"
_BROADCAST: Final = 0x8000
_SHORTEST_REPLY: Final = 300
"""BOOTP's size: old clients drop what is shorter (RFC 1542, 2.1)."""


class MessageType(IntEnum):
    DISCOVER = 1
    OFFER = 2
    REQUEST = 3
    DECLINE = 4
    ACK = 5
    NAK = 6
    RELEASE = 7
    INFORM = 8


_OF_CLIENTS: Final = frozenset(
    (MessageType.DISCOVER, MessageType.REQUEST, MessageType.DECLINE, MessageType.RELEASE, MessageType.INFORM)
)


@dataclass(frozen=True, kw_only=True)
class HostMessage:
    """What a host says. `has`: the address that it uses already (ciaddr), 0.0.0.0 if none; `requested` and `server`:
    what options 50 and 54 name; `identifier`, `vendor_class`, `user_class`, `architecture`, `machine_identifier`:
    options 61, 60, 77, 93 and 97 as they came."""

    kind: MessageType
    transaction: int
    mac: str
    has: IPv4Address = NO_ADDRESS
    requested: IPv4Address | None = None
    server: IPv4Address | None = None
    wants_broadcast: bool = False
    identifier: bytes | None = None
    vendor_class: bytes = b""
    user_class: bytes = b""
    architecture: bytes = b""
    machine_identifier: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What it is answered, and to which address. `gives`: yiaddr, 0.0.0.0 if none; `options`: beside the type;
    `next_server`, `file`: what BIOS firmware reads of a boot file, 127 bytes at most."""

    kind: MessageType
    request: HostMessage
    to: IPv4Address
    gives: IPv4Address = NO_ADDRESS
    options: tuple[tuple[int, bytes], ...] = ()
    next_server: IPv4Address = NO_ADDRESS
    file: bytes = b""


def decode(data: bytes) -> HostMessage | None:
    """None: it is no request of an Ethernet client that came without a relay. Never raises."""
    if not _HEADER.size <= len(data) <= LONGEST_REQUEST:
        return None
    op, htype, hlen, _, transaction, _, flags, has, _, _, relay, mac, _, cookie = _HEADER.unpack_from(data)
    if (op, htype, hlen, cookie) != (_REQUEST, _ETHERNET, _MAC_BYTES, _COOKIE) or IPv4Address(relay) != NO_ADDRESS:
        return None
    options = _read_options(data)
    if options is None:
        return None
    requested, server = options.get(REQUESTED_ADDRESS), options.get(SERVER_IDENTIFIER)
    kind, identifier = options.get(MESSAGE_TYPE, b""), options.get(CLIENT_IDENTIFIER)
    machine = options.get(MACHINE_IDENTIFIER, b"")
    if len(kind) != 1 or kind[0] not in _OF_CLIENTS:
        return None
    if any(each is not None and len(each) != 4 for each in (requested, server)):
        return None
    return HostMessage(
        kind=MessageType(kind[0]),
        transaction=transaction,
        mac=":".join(f"{octet:02x}" for octet in mac),
        has=IPv4Address(has),
        requested=IPv4Address(requested) if requested is not None else None,
        server=IPv4Address(server) if server is not None else None,
        wants_broadcast=bool(flags & _BROADCAST),
        identifier=identifier if identifier and len(identifier) <= 255 else None,
        vendor_class=options.get(VENDOR_CLASS, b"")[:255],
        user_class=options.get(USER_CLASS, b"")[:255],
        architecture=options.get(CLIENT_ARCHITECTURE, b"")[:255],
        machine_identifier=machine if len(machine) == _MACHINE_IDENTIFIER_BYTES else b"",
    )


def encode(reply: Reply) -> bytes:
    """576 bytes with the headers of IP and UDP at most, which every client takes."""
    request = reply.request
    said = _HEADER.pack(
        _REPLY,
        _ETHERNET,
        _MAC_BYTES,
        0,
        request.transaction,
        0,
        _BROADCAST if request.wants_broadcast else 0,
        request.has.packed if reply.kind is MessageType.ACK else NO_ADDRESS.packed,
        reply.gives.packed,
        reply.next_server.packed,
        NO_ADDRESS.packed,
        bytes.fromhex(request.mac.replace(":", "")),
        reply.file,
        _COOKIE,
    )
    options = [(MESSAGE_TYPE, bytes((reply.kind,))), *reply.options]
    if request.identifier is not None:
        options.append((CLIENT_IDENTIFIER, request.identifier))  # as it came: RFC 6842
    if request.machine_identifier and reply.next_server != NO_ADDRESS:
        options.append((MACHINE_IDENTIFIER, request.machine_identifier))  # to firmware, as it came: RFC 4578, 2.3
    # Some firmware reads text up to a zero, whatever its length says: a PAD behind it is that zero.
    said += b"".join(bytes((code, len(value))) + value + bytes(code in _TEXTS) for code, value in options) + bytes(
        (_END,)
    )
    return said.ljust(_SHORTEST_REPLY, bytes((_PAD,)))


def _read_options(data: bytes) -> dict[int, bytes] | None:
    """None: one reaches beyond the packet. One that comes twice is one in two pieces (RFC 3396)."""
    found: dict[int, bytes] = {}
    at = _HEADER.size
    while at < len(data) and data[at] != _END:
        code, value_at = data[at], at + 2
        if code == _PAD:
            at += 1
            continue
        at = value_at + data[at + 1] if value_at <= len(data) else len(data) + 1
        if at > len(data):
            return None
        found[code] = found.get(code, b"") + data[value_at:at]
    return found
