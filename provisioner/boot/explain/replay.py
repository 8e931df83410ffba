"""Captured DHCP messages, answered from the inventory as it is now. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from socket import inet_aton
from typing import Final

from provisioner.api import Rack, Server
from provisioner.boot.capture.read import CapturedMessage
from provisioner.boot.dhcp.wire.describe import DescribedMessage, describe_message
from provisioner.boot.dhcp.wire.packet import NO_ADDRESS
from provisioner.boot.explain.facts import BootHost
from provisioner.boot.explain.lease import ExplainedResponder, Lease, PacketPath

_EVERYBODY: Final = "255.255.255.255"


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """captured: as it was read; described: None of what is no message. server: who has the MAC address. lease: what it
    would be answered; None of a server's message, which `described` tells. way: how it is taken to have come; None: by
    unicast, from the address that it has, or by the relay that it names."""

    captured: CapturedMessage
    described: DescribedMessage | None
    server: str | None
    lease: Lease | None
    way: PacketPath | None


def macs_of_clients(messages: Sequence[CapturedMessage]) -> frozenset[str]:
    """Whose messages they are, as the API writes MAC addresses."""
    return frozenset(each.data[28:34].hex(":") for each in messages if len(each.data) >= 34 and each.data[0] == 1)


def replay(
    messages: Sequence[CapturedMessage],
    racks: Sequence[Rack],
    servers: Sequence[Server],
    host: BootHost,
    via: str | None = None,
) -> Iterator[Replayed]:
    """`via`: where broadcasts came in; by default where each machine's own subnet is. Raises: Refused if `via` is no
    address."""
    responder = ExplainedResponder(racks, servers, host)
    owners = {server.spec.boot_mac_address: server.name for server in servers}
    owners |= {i.mac_address: server.name for server in servers for i in server.spec.interfaces} | owners
    for message in messages:
        data = message.data
        described = describe_message(data)
        mac = data[28:34].hex(":") if len(data) >= 34 else None
        lease = way = None
        if data[:1] != b"\x02":  # no server's answer
            if mac is not None and data[24:28] == NO_ADDRESS and not _is_unicast(message):
                way = responder.way(mac, via)
                if way is not None and way.relay is not None:  # what the relay wrote is not in the packet that it got
                    data = data[:24] + inet_aton(way.relay) + data[28:]
            lease = responder.answer(data, way, message.time)
        yield Replayed(captured=message, described=described, server=owners.get(mac or ""), lease=lease, way=way)


def _is_unicast(message: CapturedMessage) -> bool:
    datagram = message.datagram
    return datagram is not None and datagram.destination != _EVERYBODY and datagram.source != "0.0.0.0"  # noqa: S104
