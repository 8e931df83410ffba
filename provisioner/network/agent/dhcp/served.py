"""Which ports are answered, and with what: read from the kernel, so that an agent that was just started knows it, too,
while the API server cannot be asked. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from provisioner.network.agent.model.state import HOME, KernelState, Place, PlaceState

_Lease = tuple[IPv4Address, IPv4Address, str, int]
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
        devices = {
            link.name
            for link in state.links
            if link.kind == "port" and link.name in functions and (place != HOME or link.master is not None)
        }
        for device, leases in _leases(state, devices).items():
            address, gateway, mac, mtu_bytes = min(leases)
            found.append(ServedPort(functions[device], place, device, mac, address, gateway, mtu_bytes))
    return tuple(sorted(found))


def _leases(state: PlaceState, devices: Collection[str]) -> Mapping[str, list[_Lease]]:
    macs = {(each.device, each.address): each.mac for each in state.neighbours if each.device in devices}
    gateways = {(each.device, each.address) for each in state.addresses if each.device in devices}
    leases: dict[str, list[_Lease]] = defaultdict(list)
    for route in state.routes:
        device = route.device
        if device is None or device not in devices or route.gateway is not None or ":" in route.destination:
            continue
        network = IPv4Network(route.destination)
        address, gateway = network.network_address, IPv4Address(int(network.network_address) ^ 1)
        mac, mtu_bytes = macs.get((device, str(address))), route.mtu_bytes
        if network.prefixlen != 32 or mac is None or (device, str(gateway)) not in gateways:
            continue
        if mtu_bytes is not None and mtu_bytes in _MTUS:
            leases[device].append((address, gateway, mac, mtu_bytes))
    return leases
