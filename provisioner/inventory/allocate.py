"""Which address a server gets. Pure.

A pinned address (spec.bootAddress) is given if it may be; an address that a server has already stays its own as long as
it fits the subnet; otherwise the lowest free one. Addresses that are pinned by anybody are never given to others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

from provisioner.api import Rack, Server
from provisioner.api.rack import Subnet
from provisioner.inventory.subnets import allocatable, choose_subnet, why_unusable


@dataclass(frozen=True)
class Holders:
    """Names of servers by address: those to whom it was given (status), and those that pin it (spec.bootAddress)."""

    given: Mapping[str, Collection[str]]
    pinned: Mapping[str, Collection[str]]

    def others(self, server: str, address: str) -> list[str]:
        """Servers but `server` that have or pin the address."""
        return sorted({*self.given.get(address, ()), *self.pinned.get(address, ())} - {server})


@dataclass(frozen=True)
class Allocation:
    """An address for a server. `new` if it is not the one that the server has."""

    address: str
    subnet_name: str
    new: bool


@dataclass(frozen=True)
class NoAddress:
    """Why there is none: a condition's reason and message. `keeps`: the address that the server has is still right."""

    reason: str
    message: str
    keeps: bool = False


def allocate(server: Server, rack: Rack, holders: Holders) -> Allocation | NoAddress:
    """The address of `server` in `rack`. `holders` are all servers' addresses, its own included."""
    subnet = choose_subnet(rack, server.spec.subnet_name)
    if subnet is None:
        known = ", ".join(subnet.name for subnet in rack.spec.subnets)
        return NoAddress("NoSubnet", f"Rack {rack.name} has no subnet {server.spec.subnet_name}; it has {known}")
    fits = server.status.address is not None and _fits(server, subnet, server.status.address, holders)
    if server.spec.boot_address is not None:
        return _pinned(server, subnet, server.spec.boot_address, holders, fits)
    if server.status.address is not None and fits:
        return Allocation(server.status.address, subnet.name, new=False)
    for candidate in allocatable(subnet):
        if not holders.others(server.name, str(candidate)):
            return Allocation(str(candidate), subnet.name, new=True)
    return NoAddress(
        "SubnetFull",
        f"subnet {subnet.name} ({subnet.cidr}) of Rack {rack.name} has no free address; widen its range, or delete "
        "servers that are gone",
    )


def _pinned(server: Server, subnet: Subnet, address: str, holders: Holders, keeps: bool) -> Allocation | NoAddress:
    try:
        problem = why_unusable(subnet, IPv4Address(address))
    except AddressValueError:
        problem = f"{address} is not an IPv4 address"
    if problem is not None:
        words = f"spec.bootAddress cannot be used: {problem}; correct it, or remove it"
        return NoAddress("AddressUnusable", words, keeps)
    others = sorted(set(holders.given.get(address, ())) - {server.name})
    if others:
        words = f"spec.bootAddress {address} is the address of Server {', '.join(others)}; "
        return NoAddress("AddressInUse", f"{words}pin another one, or pin one for {others[0]} first", keeps)
    return Allocation(address, subnet.name, new=address != server.status.address)


def _fits(server: Server, subnet: Subnet, address: str, holders: Holders) -> bool:
    """Whether the address still fits. Of two servers that ever came to have one, the first by name keeps it."""
    try:
        usable = why_unusable(subnet, IPv4Address(address)) is None
    except AddressValueError:
        return False
    return usable and all(server.name <= other for other in holders.given.get(address, ()))
