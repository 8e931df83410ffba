"""What a DHCP message says, in words for people: a client's or a server's, a well-formed one or not.

Whatever the bytes are, nothing here raises, the work is bounded, and no character of theirs reaches a terminal
as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from socket import inet_ntoa
from typing import Final
from uuid import UUID

from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.packet import NO_ADDRESS, read_options, relay_link

MOST_OPTIONS: Final = 64
LONGEST_VALUE: Final = 160

MESSAGE_TYPES: Final[Mapping[int, str]] = {
    opt.DISCOVER: "DISCOVER", opt.OFFER: "OFFER", opt.REQUEST: "REQUEST", opt.DECLINE: "DECLINE", opt.ACK: "ACK",
    opt.NAK: "NAK", opt.RELEASE: "RELEASE", opt.INFORM: "INFORM",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DescribedMessage:
    """One message. Addresses are None where they are 0.0.0.0; `options` in the order of the packet, without END."""

    message_type: str
    is_request: bool
    transaction: str
    mac_address: str
    client_address: str | None
    your_address: str | None
    next_server: str | None
    relay: str | None
    server_name: str | None
    boot_file: str | None
    options: tuple[tuple[str, str], ...]
    """Name with its number, and value."""

    def option(self, code: int) -> str | None:
        """The value of an option, in words."""
        return next((value for name, value in self.options if name.endswith(f" ({code})")), None)


def describe_message(data: bytes) -> DescribedMessage | None:
    """None for what is too short, or too long, to be a DHCP message."""
    if not opt.OPTIONS_OFFSET <= len(data) <= opt.LONGEST_MESSAGE:
        return None
    has_options = data[opt.HEADER_BYTES : opt.OPTIONS_OFFSET] == opt.MAGIC_COOKIE
    options = read_options(data) if has_options else {}
    overloaded = options.get(opt.OVERLOAD, b"\0")[:1]
    fields = overloaded[0] if overloaded else 0
    kind = options.get(opt.MESSAGE_TYPE, b"")
    return DescribedMessage(
        message_type=MESSAGE_TYPES.get(kind[0], f"type {kind[0]}") if len(kind) == 1 else "BOOTP",
        is_request=data[0] == 1,
        transaction=f"0x{data[4:8].hex()}",
        mac_address=data[28 : 28 + min(data[2], 16)].hex(":") or "none",
        client_address=_address(data[12:16]),
        your_address=_address(data[16:20]),
        next_server=_address(data[20:24]),
        relay=_address(data[24:28]),
        server_name=None if fields & 2 else _field(data[44:108]),
        boot_file=None if fields & 1 else _field(data[108:236]),
        options=tuple(
            (f"{_NAMES.get(code, 'option')} ({code})", _value(code, value))
            for code, value in list(options.items())[:MOST_OPTIONS]
            if code not in (opt.MESSAGE_TYPE, opt.OVERLOAD)
        ),
    )


def visible(text: str, longest: int = LONGEST_VALUE) -> str:
    """One line of characters that all show themselves, at most `longest` of them and a mark of what is left out."""
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text[: longest + 1])
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def _address(value: bytes) -> str | None:
    return inet_ntoa(value) if value != NO_ADDRESS else None


def _field(value: bytes) -> str | None:
    text = value.split(b"\0", 1)[0]
    return _text(text) if text else None


def _text(value: bytes) -> str:
    return visible(value.rstrip(b"\0").decode("ascii", "backslashreplace"))


def _addresses(value: bytes) -> str:
    if not value or len(value) % 4:
        return _hex(value)
    return ", ".join(inet_ntoa(value[at : at + 4]) for at in range(0, min(len(value), 64), 4))


def _hex(value: bytes) -> str:
    return value[:40].hex(":") + ("…" if len(value) > 40 else "") or "empty"


def _number(value: bytes) -> str:
    return str(int.from_bytes(value, "big")) if 0 < len(value) <= 4 else _hex(value)


def _seconds(value: bytes) -> str:
    return f"{int.from_bytes(value, 'big')} s" if len(value) == 4 else _hex(value)


def _architectures(value: bytes) -> str:
    if not value or len(value) % 2:
        return _hex(value)
    return ", ".join(str(int.from_bytes(value[at : at + 2], "big")) for at in range(0, min(len(value), 32), 2))


def _user_class(value: bytes) -> str:
    return _text(value) if all(32 <= byte < 127 for byte in value) else _hex(value)


def _relay_information(value: bytes) -> str:
    link = relay_link(value)
    return f"link {inet_ntoa(link)}, {_hex(value)}" if link is not None else _hex(value)


def _machine(value: bytes) -> str:
    """Option 97 as SMBIOS shows it, lower case: a type byte 0, then the UUID, its first three fields little endian."""
    if len(value) != 17 or value[0] != 0 or not any(value[1:]):
        return _hex(value)
    return str(UUID(bytes_le=value[1:]))


_NAMES: Final[Mapping[int, str]] = {
    opt.SUBNET_MASK: "subnet mask", opt.ROUTER: "router", opt.DNS_SERVERS: "DNS servers", 12: "host name",
    15: "domain name", opt.INTERFACE_MTU: "MTU", opt.BROADCAST_ADDRESS: "broadcast address",
    opt.NTP_SERVERS: "NTP servers", 43: "vendor information", opt.REQUESTED_ADDRESS: "requested address",
    opt.LEASE_TIME: "lease time", opt.SERVER_IDENTIFIER: "server identifier", 55: "asks for options", 56: "message",
    opt.MAXIMUM_MESSAGE_SIZE: "longest message", opt.RENEWAL_TIME: "renewal time",
    opt.REBINDING_TIME: "rebinding time", opt.VENDOR_CLASS: "vendor class",
    opt.CLIENT_IDENTIFIER: "client identifier", opt.TFTP_SERVER_NAME: "TFTP server", opt.BOOT_FILE: "boot file",
    opt.USER_CLASS: "user class", opt.RELAY_INFORMATION: "relay information",
    opt.CLIENT_ARCHITECTURE: "architecture", 94: "network interface", opt.MACHINE_IDENTIFIER: "machine identifier",
    opt.IPXE: "iPXE's own",
}  # fmt: skip
_READERS: Final[Mapping[int, Callable[[bytes], str]]] = {
    opt.SUBNET_MASK: _addresses, opt.ROUTER: _addresses, opt.DNS_SERVERS: _addresses, opt.NTP_SERVERS: _addresses,
    opt.BROADCAST_ADDRESS: _addresses, opt.REQUESTED_ADDRESS: _addresses, opt.SERVER_IDENTIFIER: _addresses,
    opt.INTERFACE_MTU: _number, opt.MAXIMUM_MESSAGE_SIZE: _number, opt.LEASE_TIME: _seconds,
    opt.RENEWAL_TIME: _seconds, opt.REBINDING_TIME: _seconds, 12: _text, 15: _text, 56: _text,
    opt.VENDOR_CLASS: _text, opt.TFTP_SERVER_NAME: _text, opt.BOOT_FILE: _text, opt.USER_CLASS: _user_class,
    opt.CLIENT_ARCHITECTURE: _architectures, opt.MACHINE_IDENTIFIER: _machine,
    opt.RELAY_INFORMATION: _relay_information,
}  # fmt: skip


def _value(code: int, value: bytes) -> str:
    return visible(_READERS.get(code, _hex)(value))
