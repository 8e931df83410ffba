"""Decode what a client sent. Nothing here raises: a packet is understood, or dropped for a reason that is counted."""

from __future__ import annotations

from enum import StrEnum
from struct import Struct
from typing import Final, NamedTuple

from provisioner.boot.dhcp.wire import options as opt


class Malformed(StrEnum):
    """Why a packet could not be read."""

    SHORT = "dropped-short-packet"
    NOT_REQUEST = "dropped-not-a-request"
    NOT_ETHERNET = "dropped-not-ethernet"
    BAD_MAC = "dropped-bad-mac"
    NO_COOKIE = "dropped-no-magic-cookie"
    TRUNCATED_OPTION = "dropped-truncated-option"
    BAD_OPTION = "dropped-bad-option"
    NO_MESSAGE_TYPE = "dropped-no-message-type"


class Packet(NamedTuple):
    """A client's message. Addresses and MAC are the bytes of the packet; `data` is all of it."""

    data: bytes
    message_type: int
    mac: bytes
    ciaddr: bytes
    giaddr: bytes
    options: dict[int, bytes]


_new: Final = tuple.__new__
"""Past a NamedTuple's own __new__, which is a Python function: that call is a tenth of the decoding."""
NO_ADDRESS: Final = bytes(4)
_NO_MAC: Final = bytes(6)
_HEADER: Final = Struct("!3s9x4s8x4s6s202x4s")
"""op with htype and hlen, ciaddr, giaddr, the MAC address in chaddr, and the cookie before the options."""
_REQUEST_BY_ETHERNET: Final = b"\x01\x01\x06"
_TWO_BYTES: Final = bytes(2)
_FILE_FIELD: Final = slice(108, 236)
_SNAME_FIELD: Final = slice(44, 108)


def decode(data: bytes) -> Packet | Malformed:
    """Read a BOOTREQUEST with DHCP options from an Ethernet client (RFC 2131)."""
    if len(data) < opt.OPTIONS_OFFSET:
        return Malformed.SHORT
    hardware, ciaddr, giaddr, mac, cookie = _HEADER.unpack_from(data)
    if hardware != _REQUEST_BY_ETHERNET:
        return Malformed.NOT_REQUEST if hardware[0] != 1 else Malformed.NOT_ETHERNET
    if cookie != opt.MAGIC_COOKIE:
        return Malformed.NO_COOKIE
    if mac[0] & 1 or mac == _NO_MAC:
        return Malformed.BAD_MAC
    options: dict[int, bytes] = {}
    if not _walk(data, opt.OPTIONS_OFFSET, options):
        return Malformed.TRUNCATED_OPTION
    if opt.OVERLOAD in options and not _walk_overloaded(data, options):
        return Malformed.TRUNCATED_OPTION
    get = options.get
    message_type = get(opt.MESSAGE_TYPE)
    if message_type is None:
        return Malformed.NO_MESSAGE_TYPE
    if (
        len(message_type) != 1
        or len(get(opt.REQUESTED_ADDRESS, NO_ADDRESS)) != 4
        or len(get(opt.SERVER_IDENTIFIER, NO_ADDRESS)) != 4
        or len(get(opt.MAXIMUM_MESSAGE_SIZE, _TWO_BYTES)) != 2
    ):
        return Malformed.BAD_OPTION
    return _new(Packet, (data, message_type[0], mac, ciaddr, giaddr, options))


def _walk(data: bytes, at: int, options: dict[int, bytes]) -> bool:
    """Collect the options of `data` from `at` on; False if one reaches beyond its end.

    An option that comes several times is joined (RFC 3396). A missing END is forgiven: old ROMs fill the packet.
    """
    # This loop is most of the work that a packet makes: hence the numbers for PAD (0) and END (255), and the end of the
    # data is met, not looked out for.
    try:
        while (code := data[at]) != 255:
            if code == 0:
                at += 1
                continue
            value_at = at + 2
            at = value_at + data[at + 1]
            if code in options:
                options[code] += data[value_at:at]
            else:
                options[code] = data[value_at:at]
    except IndexError:
        return at == len(data)
    return True


def _walk_overloaded(data: bytes, options: dict[int, bytes]) -> bool:
    """Option 52: the fields `file` (1) and `sname` (2) hold options too, in this order."""
    fields = options[opt.OVERLOAD]
    if len(fields) != 1:
        return False
    if fields[0] & 1 and not _walk(data[_FILE_FIELD], 0, options):
        return False
    return not fields[0] & 2 or _walk(data[_SNAME_FIELD], 0, options)


def relay_link(relay_information: bytes) -> bytes | None:
    """The link-selection sub-option of option 82 (RFC 3527), if it is there and well formed."""
    at = 0
    while at + 2 <= len(relay_information):
        code, length = relay_information[at], relay_information[at + 1]
        value = relay_information[at + 2 : at + 2 + length]
        if code == opt.RELAY_LINK_SELECTION and len(value) == length == 4:
            return value
        at += 2 + length
    return None
