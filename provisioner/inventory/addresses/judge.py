"""What the inventory says of a server: its address and the conditions Discovered and Accepted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from provisioner.api import Condition, Rack, Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of
from provisioner.api.servers.discovery import NAME_PREFIX
from provisioner.inventory.addresses.allocate import Allocation, Holders, LowestFree, NoAddress, allocate, scan

LOOK_AGAIN_SECONDS: Final = 15.0
"""Addresses become free without an event of this server's own."""


@dataclass(frozen=True)
class ServerContext:
    """What is known beside the server itself."""

    rack: Rack | None
    rivals: Mapping[str, str]
    """Servers that take precedence, and what both claim."""
    claimed_by: Mapping[str, str]
    """For an unknown machine: registered servers whose serial number or UUID it claims, and which of the two."""
    holders: Holders
    claims: Collection[str] = ()
    """Addresses that the server has claimed."""
    lowest_free: LowestFree = scan


@dataclass(frozen=True)
class Judgement:
    """The part of the status that the inventory owns."""

    address: str | None
    subnet_name: str | None
    discovered: Condition
    accepted: Condition
    allocates: bool = False
    """A new address is given: it must be claimed before it is written."""
    requeue_after_seconds: float | None = None

    @property
    def status(self) -> dict[str, Any]:
        """For a server-side apply; what is taken back is left out."""
        own = {"address": self.address, "subnetName": self.subnet_name}
        conditions = [to_json(self.discovered), to_json(self.accepted)]
        return {key: value for key, value in own.items() if value is not None} | {"conditions": conditions}


def unclaimed(server: Server, judgement: Judgement, why: str, now: datetime) -> Judgement:
    """`judgement` where the new address cannot be claimed: the server keeps what it has, and says `why`."""
    words = f"An address in subnet {judgement.subnet_name} is free, but {why}"
    return replace(
        judgement,
        address=server.status.address,
        subnet_name=server.status.subnet_name,
        accepted=condition_of(server, "Accepted", False, "AddressNotClaimed", words, now),
    )


def judge(server: Server, surroundings: ServerContext, now: datetime) -> Judgement:
    """What to write about `server`."""

    discovered = condition_of(server, "Discovered", True, *_origin(server, surroundings.claimed_by), now)
    kept = server.status.address, server.status.subnet_name
    refusal = _refusal(server, surroundings)
    if refusal is not None:
        # An address that was given stays while a person sorts things out: the machine may be running with it.
        address = (None, None) if refusal[0] == "Rejected" else kept
        return Judgement(*address, discovered, condition_of(server, "Accepted", False, *refusal, now))
    assert surroundings.rack is not None  # noqa: S101 - _refusal has seen to it
    allocation = allocate(
        server,
        surroundings.rack,
        surroundings.holders,
        claims=surroundings.claims,
        lowest_free=surroundings.lowest_free,
    )
    if isinstance(allocation, NoAddress):
        accepted = condition_of(server, "Accepted", False, allocation.reason, allocation.message, now)
        address = kept if allocation.keeps else (None, None)
        return Judgement(*address, discovered, accepted, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    words = _accepted_message(server, surroundings.rack, allocation)
    accepted = condition_of(server, "Accepted", True, "Accepted", words, now)
    return Judgement(allocation.address, allocation.subnet_name, discovered, accepted, allocates=allocation.new)


def _origin(server: Server, claimed_by: Mapping[str, str]) -> tuple[str, str]:
    """Reason and message of Discovered."""
    discovery = server.status.discovery
    if discovery is None and not server.name.startswith(NAME_PREFIX):
        return "Registered", f"Registered with boot MAC address {server.spec.boot_mac_address}"
    claims: Sequence[tuple[str, str | None]] = ()
    if discovery is not None:
        claims = (
            ("manufacturer", discovery.manufacturer),
            ("product", discovery.product),
            ("serial number", discovery.serial_number),
            ("UUID", discovery.system_uuid),
            ("address", discovery.address),
        )
    said = ", ".join(f"{what} {value}" for what, value in claims if value) or "nothing of itself"
    message = f"Unknown machine {server.spec.boot_mac_address} asked to boot and said (unproven): {said}"
    for name, what in claimed_by.items():
        message += (
            f". Server {name} has the same {what} and another boot MAC address: if an interface of {name} was "
            f"replaced, set its spec.bootMACAddress to {server.spec.boot_mac_address} (with acceptance Pending, then "
            f"accept it) and delete {server.name}"
        )
    return "UnknownMachine", message


def _refusal(server: Server, surroundings: ServerContext) -> tuple[str, str] | None:
    """Reason and message if the server may not boot at all; None if it gets an address."""
    spec = server.spec
    if spec.acceptance == "Rejected":
        return "Rejected", f"Rejected; to let it boot: kubectl provision accept {server.name}"
    if surroundings.rivals:
        both = ", ".join(f"{name} ({what})" for name, what in surroundings.rivals.items())
        first = next(iter(surroundings.rivals))
        return (
            "Duplicate",
            f"Server {server.name} claims what Server {both} has already; correct one of them, or kubectl delete "
            f"server {server.name} if it is the same machine as {first}",
        )
    if spec.acceptance == "Pending":
        options = "" if spec.node_pool_ref else " --pool POOL"
        options += "" if spec.rack_ref else " --rack RACK"
        return "Pending", f"Waits for acceptance: kubectl provision accept {server.name}{options}"
    if spec.rack_ref is None:
        return "NoRack", f"In no rack, and so in no subnet: kubectl provision accept {server.name} --rack RACK"
    if surroundings.rack is None:
        return "NoRack", f"Rack {spec.rack_ref} does not exist; create it, or correct spec.rackRef"
    return None


def _accepted_message(server: Server, rack: Rack, allocation: Allocation) -> str:
    place = f"Boots in subnet {allocation.subnet_name} of Rack {rack.name} with address {allocation.address}"
    if server.spec.node_pool_ref is None:
        return f"{place}; waits for a NodePool: kubectl provision accept {server.name} --pool POOL"
    return place
