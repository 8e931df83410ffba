"""The DHCP option codes and constants that are spoken here (RFC 2132, 3046, 4578, 5970 and iPXE's option 175)."""

from __future__ import annotations

import struct
from typing import Final

SUBNET_MASK: Final = 1
ROUTER: Final = 3
DNS_SERVERS: Final = 6
INTERFACE_MTU: Final = 26
BROADCAST_ADDRESS: Final = 28
NTP_SERVERS: Final = 42
REQUESTED_ADDRESS: Final = 50
LEASE_TIME: Final = 51
OVERLOAD: Final = 52
MESSAGE_TYPE: Final = 53
SERVER_IDENTIFIER: Final = 54
MAXIMUM_MESSAGE_SIZE: Final = 57
RENEWAL_TIME: Final = 58
REBINDING_TIME: Final = 59
VENDOR_CLASS: Final = 60
CLIENT_IDENTIFIER: Final = 61
TFTP_SERVER_NAME: Final = 66
BOOT_FILE: Final = 67
USER_CLASS: Final = 77
RELAY_INFORMATION: Final = 82
CLIENT_ARCHITECTURE: Final = 93
MACHINE_IDENTIFIER: Final = 97
IPXE: Final = 175
END: Final = 255
PAD: Final = b"\0"

RELAY_LINK_SELECTION: Final = 5
"""Sub-option of option 82 (RFC 3527): the subnet of the client where giaddr is not in it."""

DISCOVER: Final = 1
OFFER: Final = 2
REQUEST: Final = 3
DECLINE: Final = 4
ACK: Final = 5
NAK: Final = 6
RELEASE: Final = 7
INFORM: Final = 8

MAGIC_COOKIE: Final = b"\x63\x82\x53\x63"
HEADER_BYTES: Final = 236
OPTIONS_OFFSET: Final = HEADER_BYTES + len(MAGIC_COOKIE)
LONGEST_MESSAGE: Final = 9_216
"""Of a client's: more than a jumbo frame holds. A longer one is no client's, and the work for it has to be bounded."""
MINIMUM_REPLY_BYTES: Final = 300
"""BOOTP's message size; relays and old ROMs drop shorter ones (RFC 1542, section 2.1)."""
MINIMUM_MESSAGE_LIMIT: Final = 576
"""Every client must accept an IP datagram of this size; option 57 can only raise it (RFC 2132, section 9.10)."""
MAXIMUM_MESSAGE_LIMIT: Final = 1500
"""What goes through every Ethernet in one piece, whatever the client says that it accepts: ROMs put no fragments
together."""
IP_UDP_HEADER_BYTES: Final = 28

NO_PXE_DHCP: Final = bytes((0xB0, 1, 1))
"""iPXE's encapsulated setting no-pxedhcp: do not wait seconds for a proxyDHCP server that is not there."""


def encode_option(code: int, value: bytes) -> bytes:
    """One option as it goes on the wire. `value` is 1 to 255 bytes."""
    return bytes((code, len(value))) + value


def encode_text(code: int, text: bytes) -> bytes:
    """An option whose value some firmware reads up to a zero, whatever its length says: a PAD behind it is that zero.

    dnsmasq counts a zero as part of the value, which other firmware then asks TFTP for.
    """
    return encode_option(code, text) + PAD


def encode_long_option(code: int, value: bytes) -> bytes:
    """An option of any length, in as many pieces as it needs (RFC 3396)."""
    if len(value) <= 255:
        return bytes((code, len(value))) + value
    return b"".join(encode_option(code, value[at : at + 255]) for at in range(0, len(value), 255))


def encode_seconds(code: int, seconds: int) -> bytes:
    return encode_option(code, struct.pack("!I", seconds))
