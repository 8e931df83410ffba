"""From Rack and Server objects to what the responder must know, one change at a time.

Pure: objects in, a `Delta` out. The parent process keeps the Inventory; workers keep a ReplyTable (table.py) that
the deltas change, so that one changed server costs one entry, never ten thousand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from typing import Literal, NamedTuple

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import MAC_PATTERN, parse_mac
from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Server
from provisioner.boot.dhcp.model.subnet import ServedSubnet, SubnetKey, read_subnet
from provisioner.rules.identity import find_server, macs_of

DropReason = Literal["dropped-rejected-server", "dropped-not-the-boot-interface"]


class KnownMachine(NamedTuple):
    """What is known of one MAC address.

    A registered server without an address (yet) has neither `address` nor `drop_reason`: it is lent one like an unknown
    machine. `drop_reason` is the reason for which it is never answered.
    """

    address: bytes | None
    subnet: SubnetKey | None
    drop_reason: DropReason | None = None


@dataclass(frozen=True)
class Delta:
    """What changed; None removes. A delta with `complete` replaces everything that was known before."""

    subnets: dict[SubnetKey, ServedSubnet | None] = field(default_factory=dict)
    machines: dict[bytes, KnownMachine | None] = field(default_factory=dict)
    complete: bool = False

    def __bool__(self) -> bool:
        return bool(self.subnets or self.machines or self.complete)


class Inventory:
    """The racks and servers as last seen. Every method that changes it returns what workers must be told."""

    def __init__(self) -> None:
        self._racks: dict[str, Rack] = {}
        self._servers: dict[str, Server] = {}
        self._subnets: dict[SubnetKey, ServedSubnet] = {}
        self._machines: dict[bytes, KnownMachine] = {}
        self._claims: dict[bytes, set[str]] = {}
        self._names_by_rack: dict[str, set[str]] = {}
        self.problems: dict[str, str] = {}
        """What cannot be served and why, by object (`Rack/r01`, `Server/r01-u01`)."""

    @classmethod
    def of(cls, racks: Iterable[Rack], servers: Iterable[Server]) -> Inventory:
        """An inventory of these."""
        inventory = cls()
        for rack in racks:
            inventory.put_rack(rack)
        for server in servers:
            inventory.put_server(server)
        return inventory

    def snapshot(self) -> Delta:
        """Everything, for a worker that knows nothing."""
        return Delta(subnets=dict(self._subnets), machines=dict(self._machines), complete=True)

    def server_of(self, mac: bytes) -> str | None:
        """Name of the server that has this MAC address; of several the one that is served."""
        names = self._claims.get(mac)
        return self._first(mac, names).name if names else None

    def put_rack(self, rack: Rack) -> Delta:
        self._racks[rack.name] = rack
        return self._rack_changed(rack.name, rack)

    def remove_rack(self, name: str) -> Delta:
        self._racks.pop(name, None)
        return self._rack_changed(name, None)

    def put_server(self, server: Server) -> Delta:
        before = self._servers.get(server.name)
        macs = _macs(before) | _macs(server)
        self._forget(before)
        self._servers[server.name] = server
        for mac in _macs(server):
            self._claims.setdefault(mac, set()).add(server.name)
        if server.spec.rack_ref:
            self._names_by_rack.setdefault(server.spec.rack_ref, set()).add(server.name)
        self._note_unreadable(server)
        return Delta(machines=self._settle(macs))

    def remove_server(self, name: str) -> Delta:
        before = self._servers.pop(name, None)
        self._forget(before)
        self.problems.pop(f"Server/{name}", None)
        return Delta(machines=self._settle(_macs(before)))

    def _forget(self, server: Server | None) -> None:
        if server is None:
            return
        for mac in _macs(server):
            self._claims[mac].discard(server.name)
            if not self._claims[mac]:
                del self._claims[mac]
        if server.spec.rack_ref:
            self._names_by_rack[server.spec.rack_ref].discard(server.name)

    def _rack_changed(self, name: str, rack: Rack | None) -> Delta:
        wanted: dict[SubnetKey, ServedSubnet] = {}
        self.problems.pop(f"Rack/{name}", None)
        for subnet in rack.spec.subnets if rack else ():
            try:
                wanted[name, subnet.name] = read_subnet(name, subnet)
            except Refused as error:
                self.problems[f"Rack/{name}"] = str(error)
        changed: dict[SubnetKey, ServedSubnet | None] = {
            key: None for key in self._subnets if key[0] == name and key not in wanted
        }
        changed.update({key: subnet for key, subnet in wanted.items() if self._subnets.get(key) != subnet})
        for key, served in changed.items():
            if served is None:
                del self._subnets[key]
            else:
                self._subnets[key] = served
        macs = {mac for server in self._names_by_rack.get(name, ()) for mac in _macs(self._servers[server])}
        return Delta(subnets=changed, machines=self._settle(macs))

    def _settle(self, macs: Iterable[bytes]) -> dict[bytes, KnownMachine | None]:
        """Work out again what is known of these; what is the same as before is left out."""
        changed: dict[bytes, KnownMachine | None] = {}
        for mac in macs:
            names = self._claims.get(mac)
            machine = self._machine(mac, self._first(mac, names)) if names else None
            if machine == self._machines.get(mac):
                continue
            changed[mac] = machine
            if machine is None:
                del self._machines[mac]
            else:
                self._machines[mac] = machine
        return changed

    def _first(self, mac: bytes, names: Iterable[str]) -> Server:
        """Of the servers that claim one MAC the one that has it."""
        found = find_server(mac.hex(":"), (self._servers[name] for name in names))
        if found is None:
            raise AssertionError("a server that claims a MAC address has it")
        return found

    def _machine(self, mac: bytes, server: Server) -> KnownMachine:
        self._note_unreadable(server)
        if server.spec.acceptance == "Rejected":
            return KnownMachine(None, None, "dropped-rejected-server")
        if mac.hex(":") != server.spec.boot_mac_address:
            # Silence makes firmware that tries its NICs in turn go on to the one that was registered.
            return KnownMachine(None, None, "dropped-not-the-boot-interface")
        address, rack, subnet_name = server.status.address, server.spec.rack_ref, server.status.subnet_name
        if address is None or rack is None:
            return KnownMachine(None, None)
        try:
            packed = IPv4Address(address).packed
        except AddressValueError:
            packed = bytes(4)
        for key, subnet in self._subnets.items() if subnet_name is None else self._named(rack, subnet_name):
            if key[0] == rack and subnet.contains(packed):
                return KnownMachine(packed, key)
        self.problems[f"Server/{server.name}"] = (
            f"status.address {address} is not in subnet {subnet_name or '(any)'} of Rack {rack}"
        )
        return KnownMachine(None, None)

    def _note_unreadable(self, server: Server) -> None:
        """Say which MAC addresses are left out; what was said of the server before is forgotten."""
        self.problems.pop(f"Server/{server.name}", None)
        unreadable = [mac for mac in macs_of(server) if not _is_mac(mac)]
        if unreadable:
            self.problems[f"Server/{server.name}"] = "; ".join(map(_what_is_wrong, unreadable))

    def _named(self, rack: str, name: str) -> Iterable[tuple[SubnetKey, ServedSubnet]]:
        found = self._subnets.get((rack, name))
        return () if found is None else (((rack, name), found),)


def _macs(server: Server | None) -> set[bytes]:
    """Without what an object of before the CRD's rules has in place of one."""
    if server is None:
        return set()
    return {bytes.fromhex(mac.replace(":", "")) for mac in macs_of(server) if _is_mac(mac)}


def _is_mac(text: str) -> bool:
    return re.fullmatch(MAC_PATTERN, text) is not None


def _what_is_wrong(mac: str) -> str:
    try:
        return f"MAC address {mac!r} is not in lower case with colons; write it as {parse_mac(mac)}"
    except Refused as error:
        return str(error)
