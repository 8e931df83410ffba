"""What a machine's DHCP requests are answered: by the responder itself, with the packet that the machine would send."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from provisioner.api import Rack, Server
from provisioner.api.machinery.errors import Refused
from provisioner.boot.dhcp.model.subnet import ServedSubnet, SubnetKey
from provisioner.boot.dhcp.responder.discovery import LentAddresses
from provisioner.boot.dhcp.responder.inventory import Inventory
from provisioner.boot.dhcp.responder.respond import respond
from provisioner.boot.dhcp.responder.table import ReplyTable
from provisioner.boot.dhcp.responder.verdicts import verdict_words
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.describe import DescribedMessage, describe_message
from provisioner.boot.dhcp.wire.packet import NO_ADDRESS
from provisioner.boot.dhcp.wire.reply import Arrival
from provisioner.boot.explain.facts import BootHost
from provisioner.rules.identity import find_server

_INTERFACE: Final = 1
"""Any index: packets that came by broadcast have one."""
_XID: Final = b"\x65\x78\x70\x6c"


@dataclass(frozen=True, kw_only=True)
class PacketPath:
    """How a machine's packets come to the boot host. relay: its giaddr; None: by an interface of the boot host in that
    subnet. assumed: nobody said so, it is how its own subnet is written."""

    relay: str | None
    address: str
    subnets: tuple[SubnetKey, ...]
    assumed: bool


@dataclass(frozen=True, kw_only=True)
class Lease:
    """What became of one packet. asked: None of what is no message. subnet: the one that the answer is for."""

    verdict: str
    words: str
    remedy: str | None
    asked: DescribedMessage | None
    reply: DescribedMessage | None
    subnet: SubnetKey | None

    @property
    def lent(self) -> bool:
        """Whether the address is one of the discovery range."""
        return self.verdict.endswith("-lent")


class ExplainedResponder:
    """The responder of a boot host, with the inventory of these, for packets that nobody sent to it."""

    def __init__(self, racks: Sequence[Rack], servers: Sequence[Server], host: BootHost) -> None:
        self._racks, self._servers = racks, servers
        self._inventory = Inventory.of(racks, servers)
        self._subnets = [subnet for subnet in self._inventory.snapshot().subnets.values() if subnet is not None]
        self._table = ReplyTable(host.dhcp)
        self._table.apply(self._inventory.snapshot())
        self._discovery = LentAddresses(self._table.is_taken)

    @property
    def problems(self) -> dict[str, str]:
        """What of the inventory cannot be served as it is written, by object."""
        return self._inventory.problems

    @property
    def discovery_subnets(self) -> list[ServedSubnet]:
        """Those in which unknown machines are lent an address."""
        return sorted((subnet for subnet in self._subnets if subnet.discovery), key=lambda subnet: subnet.key)

    def way(self, mac: str, via: str | None) -> PacketPath | None:
        """How a machine's packets come: by the relay or the subnet that has the address `via`, else as its own subnet
        is written; of an unknown machine the first one with a discovery range. None if there is none.

        Raises: Refused if `via` is no address.
        """
        if via is not None:
            try:
                packed = IPv4Address(via).packed
            except ValueError as error:
                raise Refused(
                    f"{via!r} is no IPv4 address", hint="give the address of the relay, or one in the subnet"
                ) from error
            return self._way(packed, assumed=False)
        server = find_server(mac, self._servers)
        subnet = self._own_subnet(mac, server)
        if subnet is None and server is None:
            subnet = next(iter(self.discovery_subnets), None)
        if subnet is None:
            return None
        address = min(subnet.relays) if subnet.relays else (subnet.gateway or (subnet.network + 1).to_bytes(4, "big"))
        return self._way(address, assumed=True)

    def lease(self, mac: str, way: PacketPath, options: dict[int, bytes]) -> Lease:
        """What a machine's DISCOVER with `options` is answered, which comes by `way`."""
        relay = IPv4Address(way.relay).packed if way.relay is not None else NO_ADDRESS
        return self.answer(discover(mac, relay, options), way, 0.0)

    def answer(self, data: bytes, way: PacketPath | None, now: float) -> Lease:
        """What a packet is answered. way: None of one that came by unicast from the address that it has, or by the
        relay that it names. now: seconds of any clock; what was lent before is remembered."""
        arrival = Arrival()
        if way is not None and way.relay is None:
            arrival = Arrival(_INTERFACE, (IPv4Address(way.address).packed,))
        outcome = respond(data, arrival, self._table, self._discovery, now)
        words, remedy = verdict_words(outcome.verdict)
        reply = describe_message(outcome.reply) if outcome.reply is not None else None
        given = reply.your_address if reply is not None else None
        link = self._table.link_of_addresses((IPv4Address(given).packed,)) if given is not None else None
        return Lease(
            verdict=str(outcome.verdict),
            words=words,
            remedy=remedy,
            asked=describe_message(data),
            reply=reply,
            subnet=link.subnets[0].served.key if link is not None else None,
        )

    def _way(self, address: bytes, *, assumed: bool) -> PacketPath:
        is_relay = any(address in subnet.relays for subnet in self._subnets)
        link = self._table.link_of_relay(address) if is_relay else self._table.link_of_addresses((address,))
        text = str(IPv4Address(address))
        # What is in no subnet came by a relay: the boot host's own interfaces are what the operator gave them.
        by_relay = is_relay or link is None
        subnets = tuple(subnet.served.key for subnet in link.subnets) if link is not None else ()
        return PacketPath(relay=text if by_relay else None, address=text, subnets=subnets, assumed=assumed)

    def _own_subnet(self, mac: str, server: Server | None) -> ServedSubnet | None:
        machine = self._table.machines.get(mac_bytes(mac))
        served = {subnet.key: subnet for subnet in self._subnets}
        if machine is not None and machine.subnet is not None:
            return served.get(machine.subnet)
        rack = next((rack for rack in self._racks if server is not None and rack.name == server.spec.rack_ref), None)
        if server is None or rack is None:
            return None
        name = server.status.subnet_name or server.spec.subnet_name or rack.spec.subnets[0].name
        return served.get((rack.name, name))


def discover(mac: str, relay: bytes, options: dict[int, bytes]) -> bytes:
    """The DISCOVER of a machine, as its relay would pass it on (0.0.0.0: as it was broadcast)."""
    header = b"\x01\x01\x06\x00" + _XID + bytes(4) + NO_ADDRESS * 3 + relay
    written = opt.encode_option(opt.MESSAGE_TYPE, bytes((opt.DISCOVER,)))
    written += b"".join(opt.encode_option(code, value) for code, value in options.items())
    return header + mac_bytes(mac).ljust(16, b"\0") + bytes(192) + opt.MAGIC_COOKIE + written + b"\xff"


def mac_bytes(mac: str) -> bytes:
    """The six bytes of a MAC address as the API writes it."""
    return bytes.fromhex(mac.replace(":", ""))
