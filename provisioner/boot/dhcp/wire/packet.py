"""Decode what a client sent. Nothing here raises: a packet is understood, or dropped for a reason that is counted.

An option whose value cannot be what it should be costs that option: the packet is answered as if it were not there.
Only option 53 is one that no DHCP message can be without.
"""

from __future__ import annotations

from enum import StrEnum
from struct import Struct
from typing import Final, NamedTuple

from provisioner.boot.dhcp.wire import options as opt


class Malformed(StrEnum):
    """Why a packet could not be read."""

    SHORT = "dropped-short-packet"
    LONG = "dropped-long-packet"
    NOT_REQUEST = "dropped-not-a-request"
    NOT_ETHERNET = "dropped-not-ethernet"
    BAD_MAC_LENGTH = "dropped-bad-mac-length"
    BAD_MAC = "dropped-bad-mac"
    INFINIBAND = "dropped-infiniband-client"
    NO_COOKIE = "dropped-no-magic-cookie"
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
_REQUESTS_BY_ETHERNET: Final = frozenset((b"\x01\x01\x06", b"\x01\x06\x06"))
"""op, htype and hlen: Ethernet, and IEEE 802 networks, whose addresses are alike (RFC 1700, "Number Hardware Type")."""
_INFINIBAND: Final = 32
_HTYPES_WITH_MAC: Final = (1, 6)
_TWO_BYTES: Final = bytes(2)
_FILE_FIELD: Final = slice(108, 236)
_SNAME_FIELD: Final = slice(44, 108)


def decode(data: bytes) -> Packet | Malformed:
    """Read a BOOTREQUEST with DHCP options from an Ethernet client (RFC 2131)."""
    if not opt.OPTIONS_OFFSET <= len(data) <= opt.LONGEST_MESSAGE:
        return Malformed.SHORT if len(data) < opt.OPTIONS_OFFSET else Malformed.LONG
    hardware, ciaddr, giaddr, mac, cookie = _HEADER.unpack_from(data)
    if hardware not in _REQUESTS_BY_ETHERNET:
        return _reject(hardware)
    if cookie != opt.MAGIC_COOKIE:
        return Malformed.NO_COOKIE
    if mac[0] & 1 or mac == _NO_MAC:
        return Malformed.BAD_MAC
    options = read_options(data)
    get = options.get
    message_type = get(opt.MESSAGE_TYPE)
    if message_type is None or len(message_type) != 1:
        return Malformed.NO_MESSAGE_TYPE
    if len(get(opt.REQUESTED_ADDRESS, NO_ADDRESS)) != 4:
        del options[opt.REQUESTED_ADDRESS]
    if len(get(opt.SERVER_IDENTIFIER, NO_ADDRESS)) != 4:
        del options[opt.SERVER_IDENTIFIER]
    if len(get(opt.MAXIMUM_MESSAGE_SIZE, _TWO_BYTES)) != 2:
        del options[opt.MAXIMUM_MESSAGE_SIZE]
    return _new(Packet, (data, message_type[0], mac, ciaddr, giaddr, options))


def _reject(hardware: bytes) -> Malformed:
    op, htype, _ = hardware
    if op != 1:
        return Malformed.NOT_REQUEST
    if htype == _INFINIBAND:
        return Malformed.INFINIBAND
    return Malformed.BAD_MAC_LENGTH if htype in _HTYPES_WITH_MAC else Malformed.NOT_ETHERNET


def read_options(data: bytes) -> dict[int, bytes]:
    """The options of a message, those in `sname` and `file` among them (option 52: first `file`, then `sname`)."""
    options: dict[int, bytes] = {}
    _walk(data, opt.OPTIONS_OFFSET, options)
    if opt.OVERLOAD in options and len(options[opt.OVERLOAD]) == 1:
        fields = options[opt.OVERLOAD][0]
        if fields & 1:
            _walk(data[_FILE_FIELD], 0, options)
        if fields & 2:
            _walk(data[_SNAME_FIELD], 0, options)
    return options


def _walk(data: bytes, at: int, options: dict[int, bytes]) -> None:
    """Collect the options of `data` from `at` on.

    An option that comes several times is joined (RFC 3396). One that reaches beyond the end is left out: of what it
    would say the end is missing. A missing END is forgiven: old ROMs fill the packet.
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
        if at > len(data):
            del options[code]


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
