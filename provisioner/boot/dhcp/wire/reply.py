"""Put a reply together from a template and the request, and say where it goes."""

from __future__ import annotations

from functools import lru_cache
from socket import inet_ntoa
from typing import Final, NamedTuple

from provisioner.boot.dhcp.model.config import CLIENT_PORT, DhcpConfig
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient
from provisioner.boot.dhcp.wire.packet import NO_ADDRESS, Packet
from provisioner.boot.dhcp.wire.template import ReplyKind, ReplyTemplate, finish


class Arrival(NamedTuple):
    """Where a packet came in. By broadcast: the index of its interface and that one's addresses; else index 0."""

    interface_index: int = 0
    addresses: tuple[bytes, ...] = ()


class Destination(NamedTuple):
    """Where a reply goes; with `interface_index` it is broadcast out of that interface."""

    host: str
    port: int
    interface_index: int = 0


BROADCAST: Final = "255.255.255.255"
_BROADCAST_FLAG: Final = 0x80
_NO_NAMES: Final = bytes(64 + 128)
_OFFERS: Final = (ReplyKind.OFFER, ReplyKind.OFFER_LENT)
_ECHOED_TO_ALL: Final = (opt.CLIENT_IDENTIFIER,)
_ECHOED_TO_FIRMWARE: Final = (opt.CLIENT_IDENTIFIER, opt.MACHINE_IDENTIFIER)
_PLAIN: Final = DhcpClient.PLAIN
_REPLY: Final = {1: b"\x02\x01\x06\x00", 6: b"\x02\x06\x06\x00"}
"""op, htype, hlen, hops; by the htype of the request, which comes back."""


def acknowledge(packet: Packet, template: ReplyTemplate, kind: ReplyKind, client: DhcpClient, address: bytes) -> bytes:
    """An OFFER or ACK of `address`; `template` is that of its kind and client."""
    data, options = packet.data, packet.options
    siaddr, tail, complete = template
    if opt.CLIENT_IDENTIFIER in options or opt.RELAY_INFORMATION in options or opt.MACHINE_IDENTIFIER in options:
        echoed = _echoed(packet, len(tail), firmware=client is not _PLAIN)
        complete = finish(tail + echoed) if echoed else complete
    return b"".join(
        (
            _REPLY[data[1]],
            data[4:8],  # xid
            b"\0\0",  # secs
            data[10:12],  # flags
            NO_ADDRESS if kind in _OFFERS else packet.ciaddr,
            address,
            siaddr,
            data[24:44],  # giaddr, chaddr
            complete,
        )
    )


def refuse(packet: Packet, server_identifier: bytes) -> bytes:
    """A NAK: the client starts again with DISCOVER."""
    data = packet.data
    tail = b"".join(
        (
            _NO_NAMES,
            opt.MAGIC_COOKIE,
            opt.encode_option(opt.MESSAGE_TYPE, bytes((opt.NAK,))),
            opt.encode_option(opt.SERVER_IDENTIFIER, server_identifier),
        )
    )
    # Through a relay the broadcast flag is set: the client is not where its address says (RFC 2131, section 4.3.2).
    flags = bytes((data[10] | _BROADCAST_FLAG, data[11])) if packet.giaddr != NO_ADDRESS else data[10:12]
    echoed = _echoed(packet, len(tail), firmware=False)
    return b"".join((_REPLY[data[1]], data[4:8], b"\0\0", flags, bytes(12), data[24:44], finish(tail + echoed)))


def _echoed(packet: Packet, tail_bytes: int, *, firmware: bool) -> bytes:
    """Options that go back as they came: the client's identifier (RFC 6842), to firmware its machine identifier
    (RFC 4578, section 2.3), and what the relay said of itself, last (RFC 3046, section 2.2); also where giaddr is 0: a
    switch that bridges adds the option without being a relay, and finds its port by it.

    The first two are left out where the reply would be larger than the client accepts. The relay's option does not
    count: the relay takes it out again.
    """
    options = packet.options
    echoed = b""
    codes = _ECHOED_TO_FIRMWARE if firmware else _ECHOED_TO_ALL
    room = message_limit(options) - 44 - tail_bytes - 1
    for code in codes:
        value = options.get(code)
        if value:
            written = opt.encode_long_option(code, value)
            echoed += written if len(echoed) + len(written) <= room else b""
    relay_information = options.get(opt.RELAY_INFORMATION)
    if relay_information:
        echoed += opt.encode_long_option(opt.RELAY_INFORMATION, relay_information)
    return echoed


def message_limit(options: dict[int, bytes]) -> int:
    """Bytes of DHCP message that the client accepts (option 57; with IP and UDP headers 576 to 1500)."""
    wanted = options.get(opt.MAXIMUM_MESSAGE_SIZE)
    size = max(int.from_bytes(wanted, "big"), opt.MINIMUM_MESSAGE_LIMIT) if wanted else opt.MINIMUM_MESSAGE_LIMIT
    return min(size, opt.MAXIMUM_MESSAGE_LIMIT) - opt.IP_UDP_HEADER_BYTES


def destination(packet: Packet, arrival: Arrival, config: DhcpConfig, *, refused: bool = False) -> Destination:
    """Where the reply to this packet goes (RFC 2131, section 4.1)."""
    if packet.giaddr != NO_ADDRESS:
        return _at(packet.giaddr, config.server_port)
    if packet.ciaddr != NO_ADDRESS and not (
        arrival.interface_index and (refused or packet.message_type == opt.DISCOVER)
    ):
        # It has an address and answers ARP. A NAK is broadcast, as that address is wrong; so is an OFFER: who discovers
        # has none, and what it writes there may be anybody's, to whom we would send for the asking. But where the
        # request was unicast from afar only unicast reaches it.
        return _at(packet.ciaddr, CLIENT_PORT)
    # A client without an address answers no ARP: a unicast reply would need a raw socket or a forged ARP entry for each
    # packet. RFC 2131 lets a server broadcast in this case whatever the client's flag says, and every client listens.
    return _everyone(arrival.interface_index)


@lru_cache(maxsize=4096)
def _at(address: bytes, port: int) -> Destination:
    return Destination(inet_ntoa(address), port)


@lru_cache(maxsize=64)
def _everyone(interface_index: int) -> Destination:
    return Destination(BROADCAST, CLIENT_PORT, interface_index)
