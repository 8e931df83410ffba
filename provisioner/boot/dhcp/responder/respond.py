"""Decide what a packet is answered: the packet, where it came in, and the table in; a reply or a reason for none out.

Source: RFC 2131, section 4.3, with what this server can promise: a registered machine has one address, known
beforehand; anything else is lent for minutes from the discovery range, or refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from provisioner.boot.dhcp.model.sighting import Sighting, SightingKind
from provisioner.boot.dhcp.responder.discovery import LentAddresses
from provisioner.boot.dhcp.responder.table import ReplyTable, SharedNetwork, TableSubnet
from provisioner.boot.dhcp.responder.tally import Received
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient, identify
from provisioner.boot.dhcp.wire.packet import NO_ADDRESS, Malformed, Packet, decode, read_options, relay_link
from provisioner.boot.dhcp.wire.reply import Arrival, Destination, acknowledge, destination, refuse
from provisioner.boot.dhcp.wire.template import ReplyKind

_new: Final = tuple.__new__
"""For what each packet makes: a NamedTuple's own __new__ is a Python function."""


_OFFER: Final = ReplyKind.OFFER
_ACK: Final = ReplyKind.ACK
_PLAIN: Final = DhcpClient.PLAIN
"""A member of an enumeration costs several times as much where it is looked up in its class."""


class PacketOutcome(NamedTuple):
    """What to do with a packet. `verdict` is the counter to raise; without `reply` nothing is sent."""

    verdict: str
    reply: bytes | None = None
    destination: Destination | None = None
    sighting: Sighting | None = None


FORWARDED: Final = PacketOutcome("forwarded-unknown-machine")
"""An unknown machine, and this worker does not keep the discovery ranges: the one that does must see the packet."""


class _Request(NamedTuple):
    """A packet with what was found out about it."""

    packet: Packet
    arrival: Arrival
    link: SharedNetwork
    client: DhcpClient
    table: ReplyTable


def respond(
    data: bytes,
    arrival: Arrival,
    table: ReplyTable,
    discovery: LentAddresses | None,
    now: float,
    received: Received | None = None,
) -> PacketOutcome:
    """Answer one datagram. `discovery` is None in workers that do not keep the discovery ranges. `now` is monotonic.

    `received`: where it is counted as what it is, if it can be read; None for one that was counted before.
    """
    if not table.synced:
        return PacketOutcome("dropped-not-synced")
    packet = decode(data)
    if not isinstance(packet, Packet):
        return _infiniband(data, arrival, table) if packet is Malformed.INFINIBAND else PacketOutcome(packet)
    options = packet.options
    client = identify(options.get(opt.VENDOR_CLASS), options.get(opt.CLIENT_ARCHITECTURE), options.get(opt.USER_CLASS))
    if received is not None:
        received[packet.message_type][client * 2 + (packet.giaddr != NO_ADDRESS)] += 1
    if options.get(opt.SERVER_IDENTIFIER, table.server_identifier) != table.server_identifier:
        return PacketOutcome("dropped-for-another-server")
    link = _link(packet.giaddr, packet.ciaddr, options, arrival, table)
    if link is None:
        return PacketOutcome("dropped-no-subnet" if packet.giaddr == NO_ADDRESS else "dropped-unknown-relay")
    request: _Request = _new(_Request, (packet, arrival, link, client, table))
    machine = table.machines.get(packet.mac)
    if machine is not None and machine.drop_reason is not None:
        return PacketOutcome(machine.drop_reason)
    if packet.message_type == opt.INFORM:
        return _inform(request)
    if machine is None or machine.address is None or machine.subnet is None:
        return FORWARDED if discovery is None else _respond_to_unknown(request, discovery, now)
    return _respond_to_known(request, machine.address, link.by_key.get(machine.subnet))


def _link(
    giaddr: bytes, ciaddr: bytes, options: dict[int, bytes], arrival: Arrival, table: ReplyTable
) -> SharedNetwork | None:
    if giaddr != NO_ADDRESS:
        told = options.get(opt.RELAY_INFORMATION)
        return table.link_of_relay((told and relay_link(told)) or giaddr)
    if arrival.addresses:
        return table.link_of_addresses(arrival.addresses)
    # Unicast without a relay: a client that renews, or asks for options, from the address that it has.
    return table.link_of_addresses((ciaddr,))


def _infiniband(data: bytes, arrival: Arrival, table: ReplyTable) -> PacketOutcome:
    """An IPoIB client (RFC 4390) is not served: nothing after DHCP knows a machine by a GUID. A person is told."""
    options = read_options(data)
    link = _link(data[24:28], data[12:16], options, arrival, table)
    if link is None:
        return PacketOutcome(Malformed.INFINIBAND)
    # iPXE puts the GUID where a MAC address would be; others leave that empty, as the RFC says, and send option 61.
    identifier = data[28:36] if data[2] == 8 else options.get(opt.CLIENT_IDENTIFIER, b"")[-64:]
    subnet = link.subnets[0].served.key
    return PacketOutcome(
        Malformed.INFINIBAND,
        sighting=Sighting(bytes(6), data[4:8], "InfiniBand", None, subnet, identifier),
    )


def _respond_to_known(request: _Request, address: bytes, subnet: TableSubnet | None) -> PacketOutcome:
    message_type = request.packet.message_type
    if message_type == opt.DISCOVER:
        if subnet is None:
            # Cabled to another rack's network. Its own address does not work there and no other is its own.
            return PacketOutcome("dropped-wrong-subnet", sighting=_sighting(request, None, "WrongSubnet"))
        return _say(request, _OFFER, subnet, address)
    if message_type == opt.REQUEST:
        asked = _asked(request.packet)
        if asked is None:
            return PacketOutcome("dropped-no-requested-address")
        if subnet is None or asked != address:
            return _refuse(request)
        return _say(request, _ACK, subnet, address)
    if message_type == opt.DECLINE:
        # Somebody else uses a server's own address. Nothing here can mend that; a person must know.
        return PacketOutcome("declined", sighting=_sighting(request, address, "Declined"))
    return _other(message_type)


def _respond_to_unknown(request: _Request, discovery: LentAddresses, now: float) -> PacketOutcome:
    packet = request.packet
    message_type = packet.message_type
    subnets = [subnet for subnet in request.link.subnets if subnet.served.discovery]
    if message_type in (opt.DISCOVER, opt.REQUEST) and not subnets:
        sighting = _sighting(request, None) if message_type == opt.DISCOVER else None
        return PacketOutcome("dropped-no-discovery-range", sighting=sighting)
    if message_type == opt.DISCOVER:
        for subnet in subnets:
            offered = discovery.offer(packet.mac, subnet.served.discovery, now)
            if offered is not None:
                return _say(request, ReplyKind.OFFER_LENT, subnet, offered)
        return PacketOutcome("dropped-discovery-range-full", sighting=_sighting(request, None))
    if message_type == opt.REQUEST:
        asked = _asked(packet)
        if asked is None:
            return PacketOutcome("dropped-no-requested-address")
        for subnet in subnets:
            if int.from_bytes(asked, "big") in subnet.served.discovery and discovery.claim(packet.mac, asked, now):
                return _say(request, ReplyKind.ACK_LENT, subnet, asked)
        # A subnet with a discovery range has no other DHCP server: what is not from here is stale.
        return _refuse(request)
    if message_type == opt.DECLINE:
        discovery.decline(packet.mac, packet.options.get(opt.REQUESTED_ADDRESS, NO_ADDRESS), now)
        return PacketOutcome("declined")
    if message_type == opt.RELEASE:
        discovery.release(packet.mac)
    return _other(message_type)


def _inform(request: _Request) -> PacketOutcome:
    subnet = request.link.containing(request.packet.ciaddr)
    if subnet is None:
        return PacketOutcome("dropped-no-subnet")
    return _say(request, ReplyKind.INFORM_ACK, subnet, NO_ADDRESS)


def _other(message_type: int) -> PacketOutcome:
    return PacketOutcome("released" if message_type == opt.RELEASE else "dropped-message-type")


def _asked(packet: Packet) -> bytes | None:
    """The address that a REQUEST is for: its own where it renews (ciaddr), else option 50."""
    return packet.ciaddr if packet.ciaddr != NO_ADDRESS else packet.options.get(opt.REQUESTED_ADDRESS)


_VERDICTS: Final = ("offered", "acknowledged", "offered-lent", "acknowledged-lent", "informed")
"""By ReplyKind."""
_LENT: Final = (ReplyKind.OFFER_LENT, ReplyKind.ACK_LENT)


def _say(request: _Request, kind: ReplyKind, subnet: TableSubnet, address: bytes) -> PacketOutcome:
    packet, arrival, _, client, table = request
    return _new(
        PacketOutcome,
        (
            _VERDICTS[kind],
            acknowledge(packet, subnet.templates[kind][client], kind, client, address),
            destination(packet, arrival, table.config),
            _sighting(request, address) if client is not _PLAIN or kind in _LENT else None,
        ),
    )


def _refuse(request: _Request) -> PacketOutcome:
    reply = refuse(request.packet, request.table.server_identifier)
    return PacketOutcome(
        "refused", reply, destination(request.packet, request.arrival, request.table.config, refused=True)
    )


_STAGES: Final[tuple[SightingKind, ...]] = tuple(
    "System" if client is DhcpClient.PLAIN else "IPXE" if client is DhcpClient.IPXE else "Firmware"
    for client in DhcpClient
)
"""By DhcpClient."""


def _sighting(request: _Request, address: bytes | None, kind: SightingKind | None = None) -> Sighting:
    packet, _, link, client, _ = request
    return Sighting(packet.mac, packet.data[4:8], kind or _STAGES[client], address, link.subnets[0].served.key)
