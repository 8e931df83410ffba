"""A port and its rules, read from the spec into types: what cannot be read is told, and isolates that port alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final, NamedTuple

from provisioner.api.network.dpu_network import DPUPort, PortRule

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

UNICAST_MAC: Final = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}\Z")
_WHOLE: Final = ((4, AF_INET, "32"), (6, AF_INET6, "128"))
_PORTS: Final = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?\Z")


class Prefix(NamedTuple):
    """Addresses by which a route goes; `text` is as the kernel writes it."""

    version: int
    text: str


class UnreadableValue(Exception):
    """A value of the spec that says nothing the kernel could be told."""


@dataclass(frozen=True)
class Filter:
    """A rule of a security group."""

    egress: bool
    allow: bool
    protocol: str
    ports: tuple[tuple[int, int], ...]
    cidrs: tuple[Network, ...]
    stateful: bool

    def of_version(self, version: int) -> list[Network]:
        return [network for network in self.cidrs if network.version == version]


@dataclass(frozen=True)
class Port:
    """A port whose packets are to pass."""

    function: str
    vni: int
    mac: str
    addresses: tuple[Address, ...]
    gateways: tuple[Address, ...]
    prefixes: tuple[Network, ...]
    filters: tuple[Filter, ...]

    def hosts(self, version: int) -> list[Address]:
        return [address for address in self.addresses if address.version == version]

    def gateways_of(self, version: int) -> list[Address]:
        return [address for address in self.gateways if address.version == version]

    def of_version(self, version: int) -> list[Network]:
        """All from which the host may send."""
        return [
            *(ip_network(address) for address in self.hosts(version)),
            *self.behind(version),
        ]

    def behind(self, version: int) -> list[Network]:
        return [network for network in self.prefixes if network.version == version]

    def next_hops(self) -> Iterable[tuple[Network, Address]]:
        """What lies behind the host, and which of its addresses it is reached by."""
        for network in self.prefixes:
            for address in self.hosts(network.version):
                yield network, address

    @property
    def leased(self) -> tuple[IPv4Address, IPv4Address] | None:
        """What DHCP tells the host: its lowest IPv4 address whose gateway is the other one of its /31, and that one."""
        pairs = [
            (own, gateway)
            for own, gateway in zip(self.addresses, self.gateways, strict=True)
            if isinstance(own, IPv4Address) and isinstance(gateway, IPv4Address) and int(own) ^ int(gateway) == 1
        ]
        return min(pairs, default=None)

    @property
    def is_stateful(self) -> bool:
        return any(each.stateful and each.allow for each in self.filters)


def read_port(port: DPUPort) -> Port:
    """Raises: UnreadableValue, with the value and what it should be."""
    mac = port.mac_address.lower()
    if not UNICAST_MAC.match(mac):
        raise UnreadableValue(f"macAddress is {port.mac_address}, not a unicast MAC address")
    addresses = tuple(_read_address(each) for each in port.addresses)
    gateways = tuple(_read_address(each) for each in port.gateways)
    if [each.version for each in addresses] != [each.version for each in gateways]:
        raise UnreadableValue(
            f"gateways are {', '.join(port.gateways) or 'none'}, not one of the family of each of "
            f"{', '.join(port.addresses) or 'no addresses'}"
        )
    prefixes = tuple(read_network(each) for each in port.prefixes)
    lonely = [network for network in prefixes if network.version not in {each.version for each in addresses}]
    if lonely:
        raise UnreadableValue(f"prefix {lonely[0]} is of a family of which the port has no address")
    return Port(
        function=port.function,
        vni=port.vni,
        mac=mac,
        addresses=addresses,
        gateways=gateways,
        prefixes=prefixes,
        filters=tuple(_read_filter(each) for each in port.rules),
    )


def read_network(text: str) -> Network:
    try:
        return ip_network(text)
    except ValueError:
        raise UnreadableValue(f"{text} is no subnet such as 10.1.0.0/24 with its host bits clear") from None


def read_prefix(text: str) -> Prefix:
    """The same, as the kernel says it. A VPC has thousands, most of them of one address: those take a short way."""
    address, _, length = text.partition("/")
    for version, family, whole in _WHOLE:
        if length == whole:
            try:
                return Prefix(version, f"{inet_ntop(family, inet_pton(family, address))}/{whole}")
            except OSError:
                break
    network = read_network(text)
    family = AF_INET if network.version == 4 else AF_INET6
    return Prefix(network.version, f"{inet_ntop(family, network.network_address.packed)}/{network.prefixlen}")


def _read_address(text: str) -> Address:
    try:
        found = ip_address(text)
    except ValueError:
        raise UnreadableValue(f"{text} is no IP address") from None
    if found.is_multicast or found.is_link_local or found.is_loopback or found.is_unspecified:
        raise UnreadableValue(f"{text} is no address that a port can have")
    return found


def _read_filter(rule: PortRule) -> Filter:
    if rule.ports and rule.protocol not in ("TCP", "UDP"):
        raise UnreadableValue(f"a rule has ports {', '.join(rule.ports)} of protocol {rule.protocol}, which has none")
    return Filter(
        egress=rule.direction == "Egress",
        allow=rule.action == "Allow",
        protocol=rule.protocol,
        ports=tuple(_read_ports(each) for each in rule.ports),
        cidrs=tuple(read_network(each) for each in rule.cidrs),
        stateful=rule.stateful,
    )


def _read_ports(text: str) -> tuple[int, int]:
    found = _PORTS.match(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last <= 65535:
        raise UnreadableValue(f"{text} is no port or range of ports such as 443 or 1-9")
    return first, last
