"""What a host is answered. Pure: nothing is remembered of what was said before.

The mask is /31. Linux's clients take it (dhclient, busybox, systemd-networkd), and EDK2 does since it knows RFC 3021.
iPXE before June 2024 takes the higher address of a pair for a broadcast one, which is the host's own, and never the
gateway; with /32 it would send every packet by broadcast.

The lease is long, so that a host keeps its address while its DPU's agent is away; it is asked to renew soon, which
finds out what has changed. Source: RFC 2131, section 4.3.
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from typing import Final

from provisioner.network.agent.dhcp import wire
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.wire import NO_ADDRESS, HostMessage, MessageType, Reply

LEASE_SECONDS: Final = 7 * 86400
REBIND_SECONDS: Final = 6 * 86400
RENEW_SECONDS: Final = 3600
_MASK: Final = IPv4Address("255.255.255.254")
BROADCAST: Final = IPv4Address("255.255.255.255")


def answer(request: HostMessage, port: ServedPort) -> Reply | None:
    """None: silence. So for another hardware address than the port's, and for RELEASE and DECLINE, after which the
    address is still the host's and nobody else's."""
    if request.mac != port.mac:
        return None
    if request.kind is MessageType.INFORM and request.has == port.address:
        return Reply(kind=MessageType.ACK, request=request, to=port.address, options=(_server(port), *_network(port)))
    kind = kind_of_answer(request, port.gateway, port.address)
    if kind is MessageType.NAK:
        return refusal(request, port.gateway)
    return _gives(kind, request, port) if kind is not None else None


def kind_of_answer(request: HostMessage, server: IPv4Address, address: IPv4Address) -> MessageType | None:
    """OFFER; ACK or NAK to a host that takes an offer, remembers an address, or renews. None: silence, also where it
    takes another's offer. `address`: the one that it may have."""
    if request.kind is MessageType.DISCOVER:
        return MessageType.OFFER
    if request.kind is not MessageType.REQUEST or request.server not in (None, server):
        return None
    asked = {each for each in (request.requested, request.has) if each not in (None, NO_ADDRESS)}
    if not asked:
        return None
    return MessageType.ACK if asked == {address} else MessageType.NAK


def refusal(request: HostMessage, server: IPv4Address) -> Reply:
    options = ((wire.SERVER_IDENTIFIER, server.packed),)
    return Reply(kind=MessageType.NAK, request=request, to=BROADCAST, options=options)


def _gives(kind: MessageType, request: HostMessage, port: ServedPort) -> Reply:
    to = BROADCAST if request.wants_broadcast and request.has == NO_ADDRESS else port.address
    times = (
        (wire.LEASE_TIME, struct.pack("!I", LEASE_SECONDS)),
        (wire.RENEWAL_TIME, struct.pack("!I", RENEW_SECONDS)),
        (wire.REBINDING_TIME, struct.pack("!I", REBIND_SECONDS)),
    )
    options = (_server(port), *times, *_network(port))
    return Reply(kind=kind, request=request, to=to, gives=port.address, options=options)


def _server(port: ServedPort) -> tuple[int, bytes]:
    return wire.SERVER_IDENTIFIER, port.gateway.packed


def _network(port: ServedPort) -> tuple[tuple[int, bytes], ...]:
    return (
        (wire.SUBNET_MASK, _MASK.packed),
        (wire.ROUTER, port.gateway.packed),
        (wire.INTERFACE_MTU, struct.pack("!H", port.mtu_bytes)),
    )
