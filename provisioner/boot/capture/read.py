"""The DHCP messages in a capture, whatever form it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from socket import inet_ntoa
from typing import Final, NamedTuple

from provisioner.api.machinery.errors import Refused
from provisioner.boot.capture.pcap import PCAPNG_MAGIC, Frame, is_pcap, read_pcap, read_pcapng
from provisioner.boot.dhcp.wire import options as opt

# From a frame to the UDP datagram in it: Ethernet with VLAN tags, Linux' cooked captures, raw IP. IPv4 alone.

_ETHERNET, _RAW_BSD, _RAW, _NULL, _LOOP, _COOKED, _COOKED2, _IPV4 = 1, 12, 101, 0, 108, 113, 276, 228
_TAGS: Final = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")
_MOST_TAGS: Final = 4
_ETHERTYPE_IPV4: Final = b"\x08\x00"
_UDP: Final = 17


class Datagram(NamedTuple):
    """One UDP datagram, as far as it was captured."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    payload: bytes


def read_datagram(link_type: int, data: bytes) -> Datagram | None:
    """None for what is no UDP over IPv4, for a fragment, and for what was cut before its ports."""
    packet = _ip_packet(link_type, data)
    if packet is None or len(packet) < 20 or packet[0] >> 4 != 4:
        return None
    header = (packet[0] & 15) * 4
    is_fragment = int.from_bytes(packet[6:8], "big") & 0x3FFF
    if header < 20 or len(packet) < header + 8 or packet[9] != _UDP or is_fragment:
        return None
    source_port, port, length = (int.from_bytes(packet[header + at : header + at + 2], "big") for at in (0, 2, 4))
    payload = packet[header + 8 : header + max(length, 8)]
    return Datagram(inet_ntoa(packet[12:16]), source_port, inet_ntoa(packet[16:20]), port, payload)


def _ip_packet(link_type: int, data: bytes) -> bytes | None:
    if link_type in (_RAW, _RAW_BSD, _IPV4, 14):
        return data
    if link_type in (_NULL, _LOOP):
        return data[4:]
    if link_type == _COOKED:
        return data[16:] if data[14:16] == _ETHERTYPE_IPV4 else None
    if link_type == _COOKED2:
        return data[20:] if data[:2] == _ETHERTYPE_IPV4 else None
    if link_type != _ETHERNET:
        return None
    at = 12
    for _ in range(_MOST_TAGS):
        if data[at : at + 2] not in _TAGS:
            break
        at += 4
    return data[at + 2 :] if data[at : at + 2] == _ETHERTYPE_IPV4 else None


LARGEST_FILE: Final = 64 * 1024 * 1024
MOST_MESSAGES: Final = 1000
"""That are read from one file."""
_DHCP_PORTS: Final = frozenset((67, 68))
_EXPECTED: Final = "give a file of `tcpdump -w`, or the hexadecimal digits of one packet"
_DUMPED: Final = re.compile(r"\s*(?:0x)?([0-9a-fA-F]{3,8}):?\s{1,4}((?:[0-9a-fA-F]{2} {0,2}){1,32})")
"""A line with its offset, as tcpdump -x, xxd, hexdump and Wireshark print it: sixteen bytes, and a text behind them."""
_DIGITS_IN_LINE: Final = 32


class CapturedMessage(NamedTuple):
    """A DHCP message. time: seconds since the epoch, 0 if the file has none. datagram: how it travelled, if known; its
    payload is the message."""

    time: float
    data: bytes
    datagram: Datagram | None


def read_capture(file: Path) -> tuple[list[CapturedMessage], bool]:
    """The messages of a file, and whether there are more than MOST_MESSAGES. Raises: Refused for what is no capture."""
    try:
        with file.open("rb") as stream:
            content = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}", hint=_EXPECTED) from error
    if len(content) > LARGEST_FILE:
        raise Refused(f"{file} is larger than {LARGEST_FILE >> 20} MiB", hint="tcpdump -r FILE -w SMALLER udp port 67")
    return read_messages(content)


def read_messages(content: bytes) -> tuple[list[CapturedMessage], bool]:
    """The same, of a file's content."""
    if content.startswith(PCAPNG_MAGIC):
        found = _of_frames(read_pcapng(content))
    elif is_pcap(content):
        found = _of_frames(read_pcap(content))
    else:
        found = iter([_of_digits(content)])
    messages = list(islice(found, MOST_MESSAGES + 1))
    return messages[:MOST_MESSAGES], len(messages) > MOST_MESSAGES


def _of_frames(frames: Iterator[Frame]) -> Iterator[CapturedMessage]:
    for frame in frames:
        datagram = read_datagram(frame.link_type, frame.data)
        if datagram is not None and _DHCP_PORTS & {datagram.source_port, datagram.destination_port}:
            yield CapturedMessage(frame.time, datagram.payload, datagram)


def _of_digits(content: bytes) -> CapturedMessage:
    """One packet as digits: the message itself, or the frame that it is in. Lines that begin with # are comments; the
    offsets and texts beside the digits that tcpdump and Wireshark print are left out."""
    try:
        text = content[: 16 * opt.LONGEST_MESSAGE].decode("ascii")
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        dumped = [found for line in lines if (found := _DUMPED.match(line))]
        if dumped and int(dumped[0][1], 16) == 0:
            lines = [found[2].replace(" ", "")[:_DIGITS_IN_LINE] for found in dumped]
        data = bytes.fromhex("".join(lines).replace(":", ""))
    except ValueError as error:
        raise Refused("the file is no pcap, no pcapng, and no hexadecimal digits", hint=_EXPECTED) from error
    if data[opt.HEADER_BYTES : opt.OPTIONS_OFFSET] != opt.MAGIC_COOKIE:
        for link_type in (1, 101):
            datagram = read_datagram(link_type, data)
            if datagram is not None:
                return CapturedMessage(0.0, datagram.payload, datagram)
    return CapturedMessage(0.0, data, None)
