"""Which ports are answered, and with what: read from the kernel, so that an agent that was just started knows it, too,
while the API server cannot be asked. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from provisioner.network.agent.state import HOME, KernelState, Link, Place, PlaceState

_Pair = tuple[IPv4Address, IPv4Address, str, int]
"""Address, gateway, hardware address, MTU in bytes."""

_MTUS: Final = range(68, 1 << 16)
"""That option 26 can say."""


@dataclass(frozen=True, order=True)
class ServedPort:
    """A port whose host may ask. `mac`, `address`: the host's; `gateway`: the DPU's own; `mtu_bytes`: of the VPC."""

    function: str
    place: Place
    device: str
    mac: str
    address: IPv4Address
    gateway: IPv4Address
    mtu_bytes: int


def served_ports(places: KernelState, functions: Mapping[str, str]) -> tuple[ServedPort, ...]:
    """Those in a domain with an IPv4 address and, as its gateway, the other one of its /31; of several the lowest.

    `functions`: by interface.
    """
    found = []
    for place, state in places.items():
        ports = [link for link in state.links if link.kind == "port" and link.name in functions]
        ports = [link for link in ports if place != HOME or link.master is not None]
        pairs = _pairs(state, ports)
        for link in ports:
            if pairs[link.name]:
                address, gateway, mac, mtu_bytes = min(pairs[link.name])
                found.append(ServedPort(functions[link.name], place, link.name, mac, address, gateway, mtu_bytes))
    return tuple(sorted(found))


def _pairs(state: PlaceState, ports: list[Link]) -> Mapping[str, list[_Pair]]:
    names = {link.name for link in ports}
    macs = {(each.device, each.address): each.mac for each in state.neighbours if each.device in names}
    gateways = {(each.device, each.address) for each in state.addresses if each.device in names}
    pairs = defaultdict(list)
    for route in state.routes:
        if route.device not in names or route.gateway is not None or ":" in route.destination:
            continue
        network = IPv4Network(route.destination)
        address = network.network_address
        gateway = IPv4Address(int(address) ^ 1)
        mac = macs.get((route.device, str(address)))
        is_ours = network.prefixlen == 32 and mac is not None and (route.device, str(gateway)) in gateways
        if is_ours and route.mtu_bytes in _MTUS:
            pairs[route.device].append((address, gateway, mac, route.mtu_bytes))
    return pairs
