"""What became of a packet, in words: each verdict of the responder, and what a person can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from provisioner.boot.dhcp.wire.packet import Malformed


class PacketVerdict(NamedTuple):
    """`remedy` is None where nothing is wrong, or nothing can be done here."""

    words: str
    remedy: str | None = None


_REGISTER: Final = "register the server, or give its subnet in the Rack a discovery range"

VERDICTS: Final[Mapping[str, PacketVerdict]] = {
    "offered": PacketVerdict("it is offered its own address"),
    "acknowledged": PacketVerdict("its own address is confirmed"),
    "offered-lent": PacketVerdict("it is offered an address of the discovery range, for minutes"),
    "acknowledged-lent": PacketVerdict("the address of the discovery range is its own for minutes"),
    "informed": PacketVerdict("it has an address and is told the options of its subnet"),
    "refused": PacketVerdict(
        "the address that it asks for is not its own here (NAK): it begins again with DISCOVER",
        "none is needed, unless it goes on: then another DHCP server offers it addresses in this network",
    ),
    "declined": PacketVerdict(
        "it found the address in use", "find the machine that has the address: arping ADDRESS on that network"
    ),
    "released": PacketVerdict("it gave its address back; a registered server's stays its own"),
    "forwarded-unknown-machine": PacketVerdict("an unknown machine: another worker of this host answers it"),
    "dropped-not-synced": PacketVerdict(
        "the boot host does not know the inventory yet", "can the boot host reach the API server? see its log"
    ),
    "dropped-for-another-server": PacketVerdict(
        "it takes the offer of another DHCP server", "find the other DHCP server in this network, and turn it off"
    ),
    "dropped-no-subnet": PacketVerdict(
        "it came in by an interface, or from an address, that is in no subnet of any Rack",
        "add the subnet to its Rack (spec.subnets), or --interface of the boot host",
    ),
    "dropped-unknown-relay": PacketVerdict(
        "the relay's address is named by no subnet of any Rack, and is in none",
        "add the relay's address (giaddr) to relays of the subnet in the Rack",
    ),
    "dropped-rejected-server": PacketVerdict(
        "its Server was rejected", "if that was a mistake: kubectl provision accept SERVER"
    ),
    "dropped-not-the-boot-interface": PacketVerdict(
        "its Server boots from another interface: firmware goes on to that one",
        "declare the boot interface in the BMC, or change spec.bootMACAddress",
    ),
    "dropped-wrong-subnet": PacketVerdict(
        "its own address is of another subnet than the one it asks in",
        "cable its boot interface to its own rack, or correct spec.rackRef or spec.subnetName",
    ),
    "dropped-no-discovery-range": PacketVerdict(
        "no address is its own, and no subnet where it asks has a discovery range", _REGISTER
    ),
    "dropped-discovery-range-full": PacketVerdict(
        "no address is its own, and all of the discovery range are lent",
        "accept or reject the machines that wait, or make the discovery range larger",
    ),
    "dropped-no-requested-address": PacketVerdict("its REQUEST names no address"),
    "dropped-message-type": PacketVerdict("a message of a kind that no server answers"),
    Malformed.SHORT: PacketVerdict("shorter than any DHCP message"),
    Malformed.LONG: PacketVerdict("longer than any client's message"),
    Malformed.NOT_REQUEST: PacketVerdict("not a client's message"),
    Malformed.NOT_ETHERNET: PacketVerdict("its hardware is neither Ethernet nor InfiniBand"),
    Malformed.BAD_MAC_LENGTH: PacketVerdict("its MAC address has not six bytes"),
    Malformed.BAD_MAC: PacketVerdict("its MAC address is no station's: zeros, or a group's"),
    Malformed.INFINIBAND: PacketVerdict(
        "a client by IP over InfiniBand: servers boot by Ethernet alone",
        "put the machine's Ethernet or BlueField port first in its boot order",
    ),
    Malformed.NO_COOKIE: PacketVerdict("BOOTP without DHCP's options"),
    Malformed.NO_MESSAGE_TYPE: PacketVerdict("it does not say which kind of message it is (option 53)"),
}


def verdict_words(verdict: str) -> PacketVerdict:
    """The words of a verdict of `respond`."""
    return VERDICTS.get(verdict, PacketVerdict(verdict))
