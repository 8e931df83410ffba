"""What a worker looks things up in. It changes only by deltas of the inventory, between two packets."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from provisioner.boot.dhcp.model.config import DhcpConfig
from provisioner.boot.dhcp.model.subnet import ServedSubnet, SubnetKey
from provisioner.boot.dhcp.responder.inventory import Delta, KnownMachine
from provisioner.boot.dhcp.wire.template import Templates, build_templates


class TableSubnet(NamedTuple):
    served: ServedSubnet
    templates: Templates


class SharedNetwork(NamedTuple):
    """The subnets that share one wire: those of an interface, or those that one relay address forwards for."""

    subnets: tuple[TableSubnet, ...]
    by_key: dict[SubnetKey, TableSubnet]

    def containing(self, address: bytes) -> TableSubnet | None:
        return next((subnet for subnet in self.subnets if subnet.served.contains(address)), None)


_MOST_CACHED_LINKS: Final = 4096


class ReplyTable:
    """Machines by MAC, subnets by relay or address, and their precomputed replies."""

    def __init__(self, config: DhcpConfig) -> None:
        self.config = config
        self.server_identifier = IPv4Address(config.server_address).packed
        self.machines: dict[bytes, KnownMachine] = {}
        self.synced = False
        """Whether a complete inventory has been seen. Before that nobody may be called unknown."""
        self._subnets: dict[SubnetKey, TableSubnet] = {}
        self._addresses: dict[bytes, int] = {}
        self._gateways: set[bytes] = set()
        self._links: dict[bytes | tuple[bytes, ...], SharedNetwork | None] = {}
        """By the address of a relay, or the addresses of an interface."""

    def apply(self, delta: Delta) -> None:
        if delta.complete:
            self.machines, self._subnets, self._addresses, self.synced = {}, {}, {}, True
        for mac, machine in delta.machines.items():
            self._put(mac, machine)
        for key, served in delta.subnets.items():
            if served is None:
                self._subnets.pop(key, None)
            else:
                self._subnets[key] = TableSubnet(served, build_templates(served, self.config))
        if delta.subnets or delta.complete:
            self._links.clear()
            gateways = (subnet.served.gateway for subnet in self._subnets.values())
            self._gateways = {gateway for gateway in gateways if gateway is not None}

    def _put(self, mac: bytes, machine: KnownMachine | None) -> None:
        before = self.machines.pop(mac, None)
        if before is not None and before.address is not None:
            self._addresses[before.address] -= 1
            if not self._addresses[before.address]:
                del self._addresses[before.address]
        if machine is not None:
            self.machines[mac] = machine
            if machine.address is not None:
                self._addresses[machine.address] = self._addresses.get(machine.address, 0) + 1

    def is_taken(self, address: bytes) -> bool:
        """Whether an address must not be lent: it is reserved, a gateway's or ours."""
        return address in self._addresses or address == self.server_identifier or address in self._gateways

    def link_of_relay(self, address: bytes) -> SharedNetwork | None:
        """Subnets that name this relay address; if none does, those that contain it."""
        try:
            return self._links[address]
        except KeyError:
            named = [subnet for subnet in self._subnets.values() if address in subnet.served.relays]
            return self._remember(address, named or self._containing((address,)))

    def link_of_addresses(self, addresses: tuple[bytes, ...]) -> SharedNetwork | None:
        """Subnets that contain one of the addresses, such as those of an interface."""
        try:
            return self._links[addresses]
        except KeyError:
            return self._remember(addresses, self._containing(addresses))

    def _containing(self, addresses: tuple[bytes, ...]) -> list[TableSubnet]:
        return [
            subnet for subnet in self._subnets.values() if any(subnet.served.contains(address) for address in addresses)
        ]

    def _remember(self, key: bytes | tuple[bytes, ...], subnets: Iterable[TableSubnet]) -> SharedNetwork | None:
        if len(self._links) >= _MOST_CACHED_LINKS:
            # Anybody can send any giaddr: what is remembered of them is bounded.
            self._links.clear()
        found = tuple(subnets)
        link = SharedNetwork(found, {subnet.served.key: subnet for subnet in found}) if found else None
        self._links[key] = link
        return link
