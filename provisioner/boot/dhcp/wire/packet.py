"""Decode what a client sent. Nothing here raises: a packet is understood, or dropped for a reason that is counted."""

from __future__ import annotations

from enum import StrEnum
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
NO_ADDRESS: Final = bytes(4)
_NO_MAC: Final = bytes(6)
_FIXED_LENGTHS: Final = (
    (opt.REQUESTED_ADDRESS, 4),
    (opt.SERVER_IDENTIFIER, 4),
    (opt.MAXIMUM_MESSAGE_SIZE, 2),
)
_FILE_FIELD: Final = (108, 236)
_SNAME_FIELD: Final = (44, 108)


def decode(data: bytes) -> Packet | Malformed:
    """Read a BOOTREQUEST with DHCP options from an Ethernet client (RFC 2131)."""
    if len(data) < opt.OPTIONS_OFFSET:
        return Malformed.SHORT
    if data[0] != 1:
        return Malformed.NOT_REQUEST
    if data[1] != 1 or data[2] != 6:
        return Malformed.NOT_ETHERNET
    if data[236:240] != opt.MAGIC_COOKIE:
        return Malformed.NO_COOKIE
    mac = data[28:34]
    if mac[0] & 1 or mac == _NO_MAC:
        return Malformed.BAD_MAC
    options: dict[int, bytes] = {}
    if not _walk(data, opt.OPTIONS_OFFSET, len(data), options):
        return Malformed.TRUNCATED_OPTION
    if opt.OVERLOAD in options and not _walk_overloaded(data, options):
        return Malformed.TRUNCATED_OPTION
    message_type = options.get(opt.MESSAGE_TYPE)
    if message_type is None:
        return Malformed.NO_MESSAGE_TYPE
    if len(message_type) != 1:
        return Malformed.BAD_OPTION
    for code, length in _FIXED_LENGTHS:
        if code in options and len(options[code]) != length:
            return Malformed.BAD_OPTION
    # Past the class's own __new__, which is a Python function: that call is a tenth of the decoding.
    return _new(Packet, (data, message_type[0], mac, data[12:16], data[24:28], options))


def _walk(data: bytes, start: int, end: int, options: dict[int, bytes]) -> bool:
    """Collect the options of `data[start:end]`; False if one reaches beyond `end`.

    An option that comes several times is joined (RFC 3396). A missing END is forgiven: old ROMs fill the packet.
    """
    at = start
    while at < end:
        code = data[at]
        if code == 255:  # END; as numbers, because this loop is most of the work that a packet makes
            return True
        if code == 0:  # PAD
            at += 1
            continue
        if at + 1 >= end:
            return False
        value_at = at + 2
        at = value_at + data[at + 1]
        if at > end:
            return False
        if code in options:
            options[code] += data[value_at:at]
        else:
            options[code] = data[value_at:at]
    return True


def _walk_overloaded(data: bytes, options: dict[int, bytes]) -> bool:
    """Option 52: the fields `file` (1) and `sname` (2) hold options too, in this order."""
    fields = options[opt.OVERLOAD]
    if len(fields) != 1:
        return False
    if fields[0] & 1 and not _walk(data, *_FILE_FIELD, options):
        return False
    return not fields[0] & 2 or _walk(data, *_SNAME_FIELD, options)


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
