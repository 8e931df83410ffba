"""Fetches a file of three bytes by TFTP from this host itself: what firmware will do, seen to work."""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from ipaddress import IPv4Address
from typing import Final

from provisioner.boot.dhcp.workers.sockets import interface_addresses
from provisioner.boot.host.tftp import PROBE_FILE

PORT: Final = 69
ANSWER_SECONDS: Final = 3.0
_READ, _DATA, _ACKNOWLEDGE, _ERROR = 1, 3, 4, 5
_LARGEST: Final = 2048


def is_here(address: str) -> bool:
    """Whether this host has it now: one that moves between boot hosts would be answered by another."""
    wanted = IPv4Address(address)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        found = interface_addresses(asked)
    return wanted.is_loopback or any(wanted.packed in addresses for addresses in found.values())


def fetch_probe(address: str, port: int = PORT) -> None:
    """Raises: OSError if it does not come."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        asked.settimeout(ANSWER_SECONDS)
        asked.bind((address, 0))
        asked.sendto(struct.pack("!H", _READ) + PROBE_FILE.encode() + b"\0octet\0", (address, port))
        answer, peer = asked.recvfrom(_LARGEST)
        if len(answer) < 4:
            raise OSError("TFTP answered with too few bytes")
        code, number = struct.unpack("!HH", answer[:4])
        if code == _ERROR:
            raise OSError(f"TFTP answered with error {number}: {answer[4:80].rstrip(bytes(1)).decode('latin-1')}")
        if code != _DATA:
            raise OSError(f"TFTP answered with packet type {code}, expected {_DATA}")
        asked.sendto(struct.pack("!HH", _ACKNOWLEDGE, number), peer)
