"""What a DPU's bgpd shall run with: it announces what is behind its own ports, and asks reflectors alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.evpn.configuration import Configuration, Section
from provisioner.network.evpn.identity import (
    LARGEST_ASN,
    LARGEST_LABEL,
    Network,
    distinguisher,
    ethernet_tag,
    route_target,
    vpc_mac,
)

_NO_ESI: Final = "00:00:00:00:00:00:00:00:00:00"
_NO_GATEWAY: Final = {4: str(IPv4Address(0)), 6: str(IPv6Address(0))}
_ROUTE_MAP: Final = "announced"


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """What all DPUs of a site have in common. `hold_seconds`: after how long a silent session is over."""

    asn: int
    reflectors: tuple[str, ...]
    hold_seconds: int = 9

    def __post_init__(self) -> None:
        if not 1 <= self.asn <= LARGEST_ASN:
            raise ValueError(f"asn is {self.asn}, not 1 to {LARGEST_ASN}: a route target has no room for more")
        if self.hold_seconds < 3:
            raise ValueError(f"holdSeconds is {self.hold_seconds}: BGP knows none below 3")

    @property
    def timers(self) -> str:
        return f"timers bgp {self.hold_seconds // 3} {self.hold_seconds}"


@dataclass(frozen=True, order=True)
class OwnRoute:
    """What lies behind a port of the DPU."""

    vni: int
    prefix: str

    @property
    def network(self) -> Network:
        return ip_network(self.prefix)


def own_routes(spec: DPUNetworkSpec, passing: Iterable[str]) -> list[OwnRoute]:
    """`passing`: functions whose packets pass, as the agent has read back: of others nothing is announced."""
    functions = frozenset(passing)
    found: set[OwnRoute] = set()
    for port in spec.ports:
        if port.function in functions and port.state == "Tenant":
            hosts = [str(ip_network(ip_address(each))) for each in port.addresses]
            found.update(OwnRoute(port.vni, prefix) for prefix in (*hosts, *port.prefixes))
    return sorted(found)


def speaker(vtep: str, fabric: Fabric, routes: Iterable[OwnRoute]) -> Configuration:
    """Raises: ValueError for a VNI that does not fit into a label."""
    routes = sorted(set(routes))
    vnis = sorted({each.vni for each in routes})
    if vnis and vnis[-1] > LARGEST_LABEL:
        raise ValueError(f"VNI {vnis[-1]} is above {LARGEST_LABEL}: FRR 8.4 has 20 bits for it; use a lower range")
    bgp = f"router bgp {fabric.asn}"
    found: dict[Section, tuple[str, ...]] = {}
    lists = []
    for sequence, vni in _numbered(vnis):
        name = f"vni-{vni}"
        # The whole of what the route has before a target is added: of no other VPC.
        lists.append(f"bgp extcommunity-list expanded {name} seq 5 permit ^Rmac:{vpc_mac(vni)}$")
        found[(f"route-map {_ROUTE_MAP} permit {sequence}",)] = (
            f"match extcommunity {name}",
            f"set extcommunity rt {route_target(fabric.asn, vni)}",
            f"set ip next-hop {vtep}",
        )
    peers: list[str] = []
    policies: list[str] = []
    for reflector in fabric.reflectors:
        peers += [
            f"neighbor {reflector} remote-as {fabric.asn}",
            f"neighbor {reflector} advertisement-interval 0",
            f"neighbor {reflector} timers connect 1",
        ]
        policies += [f"neighbor {reflector} activate", f"neighbor {reflector} route-map {_ROUTE_MAP} out"]
    found[()] = tuple(lists)
    found[(bgp,)] = (f"bgp router-id {vtep}", "no bgp default ipv4-unicast", fabric.timers, *peers)
    found[bgp, "address-family l2vpn evpn"] = (*(_network(vtep, each) for each in routes), *policies)
    return found


def _network(vtep: str, route: OwnRoute) -> str:
    network = route.network
    return (
        f"network {network} rd {distinguisher(vtep, route.vni)} ethtag {ethernet_tag(route.vni, network)} "
        f"label {route.vni} esi {_NO_ESI} gwip {_NO_GATEWAY[network.version]} routermac {vpc_mac(route.vni)}"
    )


def _numbered(vnis: Iterable[int]) -> Iterable[tuple[int, int]]:
    """A number of a route-map's entry for each VNI, by the VNI itself: those of others stay as VPCs come and go."""
    taken: set[int] = set()
    for vni in vnis:
        number = vni % 65535 + 1
        while number in taken:
            number = number % 65535 + 1
        taken.add(number)
        yield number, vni
