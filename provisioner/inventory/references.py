"""Whether what a packing list refers to exists: racks, subnets, addresses inside them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import AddressValueError, IPv4Address

from provisioner.api import Rack
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Refused
from provisioner.inventory.addresses.subnets import choose_subnet, why_unusable
from provisioner.inventory.lists.entries import ListEntry, Mistake


def known_racks(entries: Iterable[ListEntry], existing: Iterable[Rack]) -> dict[str, Rack]:
    """Racks by name as they will be: those in the cluster, and those of the file in their place."""
    racks = {rack.name: rack for rack in existing}
    for entry in entries:
        if entry.kind == Rack.KIND.kind:
            try:
                racks[entry.name] = decode(Rack, entry.body())
            except Refused:
                continue  # the API server says what is wrong with it
    return racks


def find_dangling(
    entries: Sequence[ListEntry], racks: Mapping[str, Rack], servers: Collection[str]
) -> tuple[Mistake, ...]:
    """Servers whose rack, subnet, address or host cannot be. `servers`: names of those in the cluster."""
    mistakes = []
    named = {entry.name for entry in entries if entry.kind == "Server"}
    for entry in entries:
        if entry.kind == "Server":
            mistake = _dangling(entry, racks)
            mistakes += [mistake] if mistake else []
            host = (entry.spec.get("dpu") or {}).get("hostRef")
            if host is not None and host not in named and host not in servers:
                observed = f"DPU {entry.name} sits in Server {host}, which is neither in the file nor registered"
                remedy = "put that server into the file, or correct the name"
                mistakes.append(Mistake(entry.origin, observed, "a server that exists", remedy))
    return tuple(mistakes)


def _dangling(entry: ListEntry, racks: Mapping[str, Rack]) -> Mistake | None:
    name = entry.spec.get("rackRef")
    if name is None:
        return None  # a rule of the CRD, if the server is accepted
    rack = racks.get(name)
    server = f"Server {entry.name}"
    if rack is None:
        known = f"one of {', '.join(sorted(racks))}" if racks else "a rack that exists"
        remedy = f"put the Rack into the file, or give --rack {name} --subnet CIDR"
        return Mistake(entry.origin, f"{server} is in rack {name}, which does not exist", known, remedy)
    subnet = choose_subnet(rack, entry.spec.get("subnetName"))
    if subnet is None:
        known = f"one of {', '.join(subnet.name for subnet in rack.spec.subnets)}"
        observed = f"{server} is in subnet {entry.spec.get('subnetName')}, which rack {name} does not have"
        return Mistake(entry.origin, observed, known, "correct subnetName, or leave it out for the first one")
    try:
        address = IPv4Address(entry.spec["bootAddress"]) if entry.spec.get("bootAddress") else None
        problem = why_unusable(subnet, address) if address else None
    except (AddressValueError, ValueError):
        return None  # the API server says what is wrong with it
    if problem is None:
        return None
    remedy = "correct bootAddress, or leave it out: one is allocated"
    return Mistake(entry.origin, f"bootAddress of {server}: {problem}", "a free host address of the subnet", remedy)
