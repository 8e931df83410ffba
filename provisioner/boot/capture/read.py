"""The DHCP messages in a capture, whatever form it has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from provisioner.api.machinery.errors import Refused
from provisioner.boot.capture.frames import Datagram, read_datagram
from provisioner.boot.capture.pcap import Frame, is_pcap, is_pcapng, read_pcap, read_pcapng
from provisioner.boot.dhcp.wire import options as opt

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
    if is_pcapng(content):
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
