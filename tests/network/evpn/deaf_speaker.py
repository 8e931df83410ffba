"""A BGP speaker that hears nothing, and announces one route of type 5 when it is told to; for one test. It knows no
route refresh.

Run as a program: `deaf_speaker.py REFLECTOR OWN-ADDRESS ASN VNI PREFIX`. Sources: RFC 4271, 4760, 9136, 9135.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from ipaddress import IPv4Address, IPv4Network
from typing import Final

_OPEN, _UPDATE, _KEEPALIVE = 1, 2, 4
_HOLD_SECONDS: Final = 180
_EVPN: Final = (25, 70)


def message(type_: int, body: bytes = b"") -> bytes:
    return b"\xff" * 16 + struct.pack("!HB", 19 + len(body), type_) + body


def greeting(asn: int, own: IPv4Address) -> bytes:
    afi, safi = _EVPN
    capability = struct.pack("!BBHBB", 1, 4, afi, 0, safi)
    parameters = struct.pack("!BB", 2, len(capability)) + capability
    head = struct.pack("!BHH4sB", 4, asn, _HOLD_SECONDS, own.packed, len(parameters))
    return message(_OPEN, head + parameters)


def announcement(asn: int, own: IPv4Address, vni: int, prefix: IPv4Network) -> bytes:
    afi, safi = _EVPN
    distinguisher = struct.pack("!H4sH", 1, own.packed, vni & 0xFFFF)
    route = distinguisher + bytes(10) + struct.pack("!IB4s4s", 0, prefix.prefixlen, prefix.network_address.packed, b"")
    route += vni.to_bytes(3, "big")
    reach = struct.pack("!HBB4sB", afi, safi, 4, own.packed, 0) + struct.pack("!BB", 5, len(route)) + route
    communities = struct.pack("!BBHI", 0, 2, asn, vni) + b"\x06\x03\x02\x03\x00" + vni.to_bytes(3, "big")
    attributes = b"".join(
        (
            b"\x40\x01\x01\x00",
            b"\x40\x02\x00",
            b"\x40\x05\x04\x00\x00\x00\x64",
            b"\xc0\x10" + bytes([len(communities)]) + communities,
            b"\x80\x0e" + bytes([len(reach)]) + reach,
        )
    )
    return message(_UPDATE, struct.pack("!HH", 0, len(attributes)) + attributes)


def main(reflector: str, own: str, asn: str, vni: str, prefix: str) -> None:
    address = IPv4Address(own)
    with socket.create_connection((reflector, 179), 180, source_address=(own, 0)) as session:
        session.sendall(greeting(int(asn), address))
        session.recv(4096)
        session.sendall(message(_KEEPALIVE))
        sys.stdin.readline()
        session.sendall(announcement(int(asn), address, int(vni), IPv4Network(prefix)))
        while True:
            time.sleep(1)
            session.sendall(message(_KEEPALIVE))


if __name__ == "__main__":
    main(*sys.argv[1:])
