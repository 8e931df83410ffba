"""Netlink messages and their attributes, as bytes. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

HEADER: Final = struct.Struct("=IHHII")
_ATTRIBUTE: Final = struct.Struct("=HH")
_U32: Final = struct.Struct("=HHI")
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
_TYPE_MASK: Final = 0x3FFF  # the two highest bits say nested and network byte order

REQUEST, ACK = 0x1, 0x4
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
DUMP: Final = 0x300
DUMP_INTERRUPTED: Final = 0x10


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes."""
    size = len(value)
    return _ATTRIBUTE.pack(4 + size, kind) + value + _PADDING[size % 4]


def u32(kind: int, value: int) -> bytes:
    return _U32.pack(_U32.size, kind, value)


def read_u32(value: bytes | None) -> int:
    """0 of what is not there."""
    return int.from_bytes(value[:4], "little") if value else 0


def read_text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


def read_mac(octets: bytes) -> str:
    return ":".join(f"{octet:02x}" for octet in octets)


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return HEADER.pack(HEADER.size + len(body), kind, flags, sequence, 0) + body


def messages(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Kind, flags, sequence number and body of each message of a datagram; what is cut off ends it."""
    at = 0
    while at + HEADER.size <= len(data):
        length, kind, flags, sequence, _ = HEADER.unpack_from(data, at)
        if length < HEADER.size or at + length > len(data):
            return
        yield kind, flags, sequence, data[at + HEADER.size : at + length]
        at += (length + 3) & ~3


def attributes(data: bytes, start: int = 0) -> dict[int, bytes]:
    """Attributes by kind, the last one of a kind; what is cut off ends them."""
    return dict(_attributes(data, start))


def all_attributes(data: bytes) -> list[bytes]:
    """The values of a list of attributes of one kind."""
    return [value for _, value in _attributes(data, 0)]


def _attributes(data: bytes, start: int) -> list[tuple[int, bytes]]:
    found = []
    at, end = start, len(data)
    while at + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < 4 or at + length > end:
            break
        found.append((kind & _TYPE_MASK, data[at + 4 : at + length]))
        at += (length + 3) & ~3
    return found
