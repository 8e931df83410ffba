"""Addresses of a subnet: which may be given to servers."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv4Network

from provisioner.api import Rack
from provisioner.api.servers.rack import Subnet


def choose_subnet(rack: Rack, subnet_name: str | None) -> Subnet | None:
    """The subnet of that name; the rack's first one without a name; None if the rack has no such subnet."""
    if subnet_name is None:
        return rack.spec.subnets[0] if rack.spec.subnets else None
    return next((subnet for subnet in rack.spec.subnets if subnet.name == subnet_name), None)


def why_unusable(subnet: Subnet, address: IPv4Address) -> str | None:
    """Why no server may have `address` in this subnet, in words; None if one may.

    The range is not asked: it bounds what is allocated, and an operator may pin an address outside of it.
    """
    network = IPv4Network(subnet.cidr)
    if address not in network:
        return f"{address} is outside subnet {subnet.name} ({subnet.cidr})"
    if address in (network.network_address, network.broadcast_address):
        return f"{address} is the network or broadcast address of subnet {subnet.name} ({subnet.cidr})"
    if str(address) == subnet.gateway:
        return f"{address} is the gateway of subnet {subnet.name}"
    if str(address) in subnet.relays:
        return f"{address} is a DHCP relay of subnet {subnet.name}"
    if subnet.discovery_range_start and subnet.discovery_range_end:
        start, end = IPv4Address(subnet.discovery_range_start), IPv4Address(subnet.discovery_range_end)
        if start <= address <= end:
            return f"{address} is in the discovery range {start} to {end} of subnet {subnet.name}"
    return None


def allocatable(subnet: Subnet) -> Iterator[IPv4Address]:
    """Addresses that may be allocated, lowest first; lazily, a /8 has many."""
    network = IPv4Network(subnet.cidr)
    start = IPv4Address(subnet.range_start) if subnet.range_start else network.network_address + 1
    end = IPv4Address(subnet.range_end) if subnet.range_end else network.broadcast_address - 1
    services = {*subnet.dns_servers, *subnet.ntp_servers}
    for number in range(int(start), int(end) + 1):
        address = IPv4Address(number)
        if str(address) not in services and why_unusable(subnet, address) is None:
            yield address


class FreeAddresses:
    """Finds the lowest free address of a subnet without a look at those below it that were found taken.

    Whoever frees an address must say so. Usable from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subnets: dict[Subnet, _Remembered] = {}

    def lowest(self, subnet: Subnet, is_free: Callable[[str], bool]) -> str | None:
        """The lowest allocatable address of which `is_free` says so; None if the subnet has none."""
        with self._lock:
            remembered = self._subnets.get(subnet)
            if remembered is None:
                remembered = self._subnets[subnet] = _Remembered(allocatable(subnet))
            return remembered.lowest(is_free)

    def freed(self, address: str) -> None:
        """Nobody has `address` any more."""
        with self._lock:
            for remembered in self._subnets.values():
                remembered.freed(int(IPv4Address(address)))

    def forget(self) -> None:
        """A subnet changed: begin anew."""
        with self._lock:
            self._subnets.clear()


class _Remembered:
    def __init__(self, candidates: Iterator[IPv4Address]) -> None:
        self._candidates = candidates
        self._passed: set[int] = set()  # found taken, and not freed since
        self._freed: list[int] = []
        self._next: IPv4Address | None = next(candidates, None)

    def lowest(self, is_free: Callable[[str], bool]) -> str | None:
        while self._freed:
            if is_free(address := str(IPv4Address(self._freed[0]))):
                return address
            self._passed.add(heapq.heappop(self._freed))
        while self._next is not None:
            if is_free(address := str(self._next)):
                return address
            self._passed.add(int(self._next))
            self._next = next(self._candidates, None)
        return None

    def freed(self, number: int) -> None:
        if number in self._passed:
            self._passed.remove(number)
            heapq.heappush(self._freed, number)
