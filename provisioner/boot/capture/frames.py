"""From a frame to the UDP datagram in it: Ethernet with VLAN tags, Linux' cooked captures, raw IP. IPv4 alone."""

from __future__ import annotations

from socket import inet_ntoa
from typing import Final, NamedTuple

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
