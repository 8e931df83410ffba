"""Which identifier and which address is taken next: pure.

The search begins at a place that the holder's uid tells, so that many who ask at once ask for different values, and one
that asks twice asks for the same. It ends at the first value that is free: a step more than there are values taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from provisioner.api.network.network_pool import VNIRange
from provisioner.network.control.compile.trouble import Trouble

Address = IPv4Address | IPv6Address
Subnet = IPv4Network | IPv6Network

NOT_GIVEN: Final = 1
"""Pairs at the beginning of a subnet that are nobody's: their gateway would be the subnet's own address, which IPv6 has
as the anycast address of its routers (RFC 4291). The last pair is given: a link of two addresses has no broadcast
(RFC 3021)."""


def choose_vni(ranges: Iterable[VNIRange], uid: str, is_taken: Callable[[int], bool]) -> int | None:
    """An identifier of an open range for the VPC with this uid; None if all are taken."""
    opened = [each for each in ranges if not each.closed]
    candidates = (opened[part].first + place for part, place in _places([_size(each) for each in opened], uid))
    return next((each for each in candidates if not is_taken(each)), None)


def count_free(ranges: Iterable[VNIRange], taken: Iterable[int]) -> int:
    """How many identifiers of open ranges are left."""
    opened = [each for each in ranges if not each.closed]
    used = sum(1 for vni in set(taken) if any(each.first <= vni <= each.last for each in opened))
    return sum(_size(each) for each in opened) - used


def choose_address(subnets: Sequence[Subnet], uid: str, is_taken: Callable[[Address], bool]) -> Address | None:
    """The address of a host, the odd one of a pair out of `subnets`, which are of one family; None if all are taken."""
    pairs = [max(0, each.num_addresses // 2 - NOT_GIVEN) for each in subnets]
    candidates = (subnets[part].network_address + 2 * (place + NOT_GIVEN) + 1 for part, place in _places(pairs, uid))
    return next((each for each in candidates if not is_taken(each)), None)


def gateway_of(address: Address) -> Address:
    """The even address of the pair whose odd one is `address`."""
    return address - 1


def subnets_of(cidrs: Iterable[str], version: int) -> list[Subnet]:
    """Those of the IP version 4 or 6, in their order."""
    return [subnet for subnet in map(ip_network, cidrs) if subnet.version == version]


def versions_of(cidrs: Iterable[str]) -> list[int]:
    """The IP versions of which there are subnets, 4 before 6."""
    return sorted({ip_network(each).version for each in cidrs})


def judge_wish(vpc: str, cidrs: Iterable[str], wish: str) -> Trouble | None:
    """Whether an attachment to `vpc` may have the address `wish`, as far as the VPC's subnets tell."""
    address, subnets = ip_address(wish), [ip_network(each) for each in cidrs]
    home = next((each for each in subnets if each.version == address.version and address in each), None)
    if home is None:
        return Trouble(
            reason="AddressOutsideVPC",
            message=f"address {wish} is in none of the cidrs of VPC '{vpc}' ({', '.join(map(str, subnets))}): name one "
            "of theirs in spec.addresses, or none, and one is chosen",
        )
    if int(address) - int(home.network_address) < 2 * NOT_GIVEN:
        return Trouble(
            reason="AddressNotGiven",
            message=f"address {wish} is of the first pair of {home}, which is given to nobody: use an odd one from "
            f"{home.network_address + 2 * NOT_GIVEN + 1} on in spec.addresses, or none",
        )
    if int(address) % 2 == 0:
        return Trouble(
            reason="AddressIsGateway",
            message=f"address {wish} is the even one of its pair, and so the gateway: use {address + 1} in "
            "spec.addresses",
        )
    return None


def _places(sizes: Sequence[int], uid: str) -> Iterator[tuple[int, int]]:
    """Every place in parts of these sizes, once: the number of the part, and of the place in it."""
    size = sum(sizes)
    if size <= 0:
        return
    start = int.from_bytes(hashlib.sha256(uid.encode()).digest(), "big") % size
    for step in range(size):
        place = (start + step) % size
        for part, length in enumerate(sizes):
            if place < length:
                yield part, place
                break
            place -= length


def _size(each: VNIRange) -> int:
    return each.last - each.first + 1
