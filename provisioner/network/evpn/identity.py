"""By what a route says which VPC and which DPU it is of. Pure.

FRR 8.4 sets what it announces by hand apart by nothing that a route-map could match but the router's hardware address:
that names the VPC here, and is no hardware address that any packet bears.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Final

Network = IPv4Network | IPv6Network

LARGEST_ASN: Final = 65535
"""A route target with a VNI of four bytes has two bytes left for the number of the autonomous system."""
LARGEST_LABEL: Final = (1 << 20) - 1
_MAC: Final = re.compile(r"Rmac:02:03:00:([0-9a-f]{2}):([0-9a-f]{2}):([0-9a-f]{2})\Z")
_COMMUNITIES: Final = re.compile(r"RT:(\d{1,5}):(\d{1,10}) Rmac:02:03:00:([0-9a-f]{2}):([0-9a-f]{2}):([0-9a-f]{2})\Z")


def vpc_mac(vni: int) -> str:
    return "02:03:00:" + ":".join(f"{byte:02x}" for byte in vni.to_bytes(3, "big"))


def read_vpc_mac(text: object) -> int | None:
    """The VNI of a route that has no target yet: of what bgpd itself announces."""
    found = _MAC.match(text) if isinstance(text, str) else None
    return int(found[1] + found[2] + found[3], 16) if found is not None else None


def route_target(asn: int, vni: int) -> str:
    return f"{asn}:{vni}"


def communities(asn: int, vni: int) -> str:
    """Of a route of this VPC, as bgpd prints them: these and no others."""
    return f"RT:{route_target(asn, vni)} Rmac:{vpc_mac(vni)}"


def read_communities(text: str, asn: int) -> int | None:
    """The VNI of which a route with them is; None: it is of none, or of two."""
    found = _COMMUNITIES.match(text)
    if found is None or int(found[1]) != asn:
        return None
    vni = int(found[2])
    return vni if vni == int(found[3] + found[4] + found[5], 16) else None


@dataclass(frozen=True, order=True)
class RouteDistinguisher:
    """VTEP:number. With the ethernet tag it makes a route of this DPU and VPC another one than any other's."""

    vtep: str
    number: int

    def __str__(self) -> str:
        return f"{self.vtep}:{self.number}"


def distinguisher(vtep: str, vni: int) -> RouteDistinguisher:
    return RouteDistinguisher(vtep, vni & 0xFFFF)


def ethernet_tag(vni: int, prefix: Network) -> int:
    """FRR 8.4 holds two prefixes that it announces by hand for one where their first two bytes (of IPv6, their first
    14) are alike: the last two bytes tell them apart. The VNI's first byte is the one that the distinguisher lacks."""
    return (vni >> 16) << 16 | int(prefix.network_address) & 0xFFFF


def read_distinguisher(text: str) -> RouteDistinguisher | None:
    vtep, separator, number = text.rpartition(":")
    if not separator or not number.isdecimal() or len(number) > 5 or read_vtep(vtep) is None:
        return None
    return RouteDistinguisher(vtep, int(number))


def read_vtep(text: object) -> str | None:
    try:
        return str(IPv4Address(text)) if isinstance(text, str) else None
    except AddressValueError:
        return None


def read_prefix(address: object, length: object) -> Network | None:
    """None where it is none, or has bits behind its length."""
    if not isinstance(address, str) or not isinstance(length, int):
        return None
    try:
        return ip_network(f"{address}/{length}")
    except ValueError:
        return None
