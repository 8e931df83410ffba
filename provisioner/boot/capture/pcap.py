"""The two file formats of captures, as far as frames are concerned.

Sources: IETF draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

LONGEST_FRAME: Final = 65_535
_PCAP_MAGIC: Final = {0xA1B2C3D4: 1e-6, 0xA1B23C4D: 1e-9}
"""Seconds of a tick."""
PCAPNG_MAGIC: Final = b"\x0a\x0d\x0d\x0a"
_BYTE_ORDER: Final = 0x1A2B3C4D
_INTERFACE, _SIMPLE, _ENHANCED, _SECTION = 1, 3, 6, 0x0A0D0D0A
_MOST_INTERFACES: Final = 4096
_LATEST: Final = 253_402_300_799.0
"""The end of the year 9999. What a file dates later has no time: nobody could tell it."""


class Frame(NamedTuple):
    """time: seconds since the epoch, 0 where the file has none. link_type: LINKTYPE_… as tcpdump numbers them."""

    time: float
    link_type: int
    data: bytes


def is_pcap(content: bytes) -> bool:
    """Whether it begins as a pcap file does, in either byte order."""
    return len(content) >= 24 and any(
        struct.unpack_from(f"{order}I", content)[0] in _PCAP_MAGIC for order in ("<", ">")
    )


def read_pcap(content: bytes) -> Iterator[Frame]:
    """The frames of a pcap file, up to the first that is not whole."""
    order = "<" if struct.unpack_from("<I", content)[0] in _PCAP_MAGIC else ">"
    magic, link_type = struct.unpack_from(f"{order}I", content)[0], struct.unpack_from(f"{order}I", content, 20)[0]
    tick, header, at = _PCAP_MAGIC[magic], struct.Struct(f"{order}4I"), 24
    while at + header.size <= len(content):
        seconds, ticks, length, _ = header.unpack_from(content, at)
        at += header.size
        if length > LONGEST_FRAME or at + length > len(content):
            return
        yield Frame(_moment(seconds + ticks * tick), link_type & 0xFFFF, content[at : at + length])
        at += length


def read_pcapng(content: bytes) -> Iterator[Frame]:
    """The frames of a pcapng file, up to the first block that is not whole."""
    order, at = "<", 0
    interfaces: list[tuple[int, float]] = []
    while at + 12 <= len(content):
        kind = struct.unpack_from(f"{order}I", content, at)[0]
        if kind == _SECTION:
            order = "<" if struct.unpack_from("<I", content, at + 8)[0] == _BYTE_ORDER else ">"
            interfaces = []
        length = struct.unpack_from(f"{order}I", content, at + 4)[0]
        if length < 12 or length % 4 or at + length > len(content):
            return
        body = content[at + 8 : at + length - 4]
        if kind == _INTERFACE and len(body) >= 8 and len(interfaces) < _MOST_INTERFACES:
            interfaces.append((struct.unpack_from(f"{order}H", body)[0], _tick(body[8:], order)))
        elif kind == _ENHANCED and len(body) >= 20:
            number, high, low, size, _ = struct.unpack_from(f"{order}5I", body)
            if number < len(interfaces) and size <= min(LONGEST_FRAME, len(body) - 20):
                link_type, tick = interfaces[number]
                yield Frame(_moment(((high << 32) | low) * tick), link_type, body[20 : 20 + size])
        elif kind == _SIMPLE and len(body) >= 4 and interfaces:
            size = min(struct.unpack_from(f"{order}I", body)[0], len(body) - 4, LONGEST_FRAME)
            yield Frame(0.0, interfaces[0][0], body[4 : 4 + size])
        at += length


def _moment(seconds: float) -> float:
    return seconds if seconds <= _LATEST else 0.0


def _tick(options: bytes, order: str) -> float:
    """Of an interface's clock: its option if_tsresol, or a microsecond."""
    at = 0
    while at + 4 <= len(options):
        code, length = struct.unpack_from(f"{order}2H", options, at)
        if code == 9 and length == 1 and at + 4 < len(options):
            value = options[at + 4]
            return float(2.0 ** -(value & 0x7F) if value & 0x80 else 10.0**-value)
        if code == 0:
            break
        at += 4 + (length + 3) // 4 * 4
    return 1e-6
