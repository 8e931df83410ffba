"""Which address a server gets. Pure.

A pinned address (spec.bootAddress) is given if it may be; an address that a server has already stays its own as long as
it fits the subnet; otherwise one that it has claimed and not taken yet, and then the lowest free one. Addresses that
are pinned by anybody are never given to others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Protocol

from provisioner.api import Rack, Server
from provisioner.api.servers.rack import Subnet
from provisioner.inventory.addresses.subnets import allocatable, choose_subnet, why_unusable


class Names(Protocol):
    """Names of servers by address: a mapping, or an index."""

    def get(self, address: str, default: Collection[str], /) -> Collection[str]: ...


@dataclass(frozen=True)
class Holders:
    """Servers by address: those to whom it was given (status), those that pin it (spec.bootAddress), and the one, if
    any, that has claimed it."""

    given: Names
    pinned: Names
    claimed: Names

    def others(self, server: str, address: str) -> list[str]:
        """Servers but `server` that have, claim or pin the address."""
        names = (self.given, self.pinned, self.claimed)
        return sorted({name for each in names for name in each.get(address, ())} - {server})


LowestFree = Callable[[Subnet, Callable[[str], bool]], str | None]
"""The lowest allocatable address of a subnet of which a predicate says that it is free; None if there is none."""


def scan(subnet: Subnet, is_free: Callable[[str], bool]) -> str | None:
    """`LowestFree` without a memory."""
    return next((address for candidate in allocatable(subnet) if is_free(address := str(candidate))), None)


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


def allocate(
    server: Server, rack: Rack, holders: Holders, *, claims: Collection[str] = (), lowest_free: LowestFree = scan
) -> Allocation | NoAddress:
    """The address of `server` in `rack`. `holders` are all servers' addresses, its own included; `claims` those that it
    has claimed."""
    subnet = choose_subnet(rack, server.spec.subnet_name)
    if subnet is None:
        known = ", ".join(subnet.name for subnet in rack.spec.subnets)
        return NoAddress("NoSubnet", f"Rack {rack.name} has no subnet {server.spec.subnet_name}; it has {known}")
    fits = server.status.address is not None and _fits(server, subnet, server.status.address, holders)
    if server.spec.boot_address is not None:
        return _pinned(server, subnet, server.spec.boot_address, holders, fits)
    if server.status.address is not None and fits:
        return Allocation(server.status.address, subnet.name, new=False)

    def is_free(address: str) -> bool:
        return not holders.others(server.name, address)

    claimed = (address for address in sorted(claims) if _fits(server, subnet, address, holders) and is_free(address))
    address = next(claimed, None) or lowest_free(subnet, is_free)
    if address is not None:
        return Allocation(address, subnet.name, new=True)
    return NoAddress(
        "SubnetFull",
        f"subnet {subnet.name} ({subnet.cidr}) of Rack {rack.name} has no free address; widen its range, or delete "
        "servers that are gone",
    )


def _pinned(server: Server, subnet: Subnet, address: str, holders: Holders, keeps: bool) -> Allocation | NoAddress:
    problem = _why_unusable(subnet, address)
    if problem is not None:
        words = f"spec.bootAddress cannot be used: {problem}; correct it, or remove it"
        return NoAddress("AddressUnusable", words, keeps)
    others = sorted({*holders.given.get(address, ()), *holders.claimed.get(address, ())} - {server.name})
    if others:
        words = f"spec.bootAddress {address} is the address of Server {', '.join(others)}; "
        return NoAddress("AddressInUse", f"{words}pin another one, or pin one for {others[0]} first", keeps)
    return Allocation(address, subnet.name, new=address != server.status.address)


def _fits(server: Server, subnet: Subnet, address: str, holders: Holders) -> bool:
    """Whether the address still fits. Of two servers that ever came to have one, who has claimed it keeps it; where
    neither has, the first by name. Who has it alone keeps it, whatever claims there are: a machine may run with it."""
    having = {server.name, *holders.given.get(address, ())}
    owner = min(having.intersection(holders.claimed.get(address, ())) or having)
    return server.name == owner and _why_unusable(subnet, address) is None


def _why_unusable(subnet: Subnet, address: str) -> str | None:
    try:
        return why_unusable(subnet, IPv4Address(address))
    except AddressValueError:
        return f"{address} is not an IPv4 address"
