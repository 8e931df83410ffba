"""A subnet as the responder needs it: numbers and bytes in place of the text of a Rack."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import NamedTuple

from provisioner.api.machinery.errors import Refused
from provisioner.api.servers.rack import Subnet

SubnetKey = tuple[str, str]
"""Names of the rack and of the subnet in it."""


class ServedSubnet(NamedTuple):
    """One subnet. Addresses are 4 bytes in network order, or the same as a number where arithmetic is done on them."""

    rack: str
    name: str
    network: int
    mask: int
    gateway: bytes | None
    dns_servers: bytes
    ntp_servers: bytes
    mtu_bytes: int | None
    relays: frozenset[bytes]
    discovery: range
    """Addresses lent to unknown machines; empty if there are none."""

    @property
    def key(self) -> SubnetKey:
        return (self.rack, self.name)

    def contains(self, address: bytes) -> bool:
        return int.from_bytes(address, "big") & self.mask == self.network


def read_subnet(rack: str, subnet: Subnet) -> ServedSubnet:
    """Read one subnet of a Rack. Raises: Refused if its addresses make no sense; the API server lets few such pass."""
    try:
        network = IPv4Network(subnet.cidr)
        served = ServedSubnet(
            rack=rack,
            name=subnet.name,
            network=int(network.network_address),
            mask=int(network.netmask),
            gateway=IPv4Address(subnet.gateway).packed if subnet.gateway else None,
            dns_servers=b"".join(IPv4Address(text).packed for text in subnet.dns_servers[:3]),
            ntp_servers=b"".join(IPv4Address(text).packed for text in subnet.ntp_servers[:4]),
            mtu_bytes=subnet.mtu,
            relays=frozenset(IPv4Address(text).packed for text in subnet.relays),
            discovery=_discovery_range(subnet, network),
        )
    except ValueError as error:
        raise Refused(
            f"subnet {subnet.name!r} of Rack {rack!r} is not served: {error}", hint="correct the Rack's spec.subnets"
        ) from error
    return served


def _discovery_range(subnet: Subnet, network: IPv4Network) -> range:
    if subnet.discovery_range_start is None or subnet.discovery_range_end is None:
        return range(0)
    first, last = IPv4Address(subnet.discovery_range_start), IPv4Address(subnet.discovery_range_end)
    if first not in network or last not in network or last < first:
        raise ValueError(f"its discovery range {first} to {last} is empty or not within {network}")
    return range(int(first), int(last) + 1)
