"""What a host may send on its port: nothing but what it was given, and what it needs to find its gateway.

Asked at netdev ingress, before anything of the DPU sees the packet. A host asks for its gateway in the name of its own
addresses, or of the one link-local address that its hardware address makes, as Linux chooses it by default. By IPv4 it
may also ask in the name of an address behind it, and is answered as if it had asked in its own: the kernel remembers
whoever asks, and has room for 1,024 neighbours in all its namespaces together. An ARP probe and a duplicate address
detection (sender 0.0.0.0 or ::) are dropped: the host is alone on its link, and silence is the answer. Of DHCP what
asks the DPU for the host's own address passes (`dhcp`).
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

from provisioner.network.agent.model.naming import GATEWAY_MAC, link_local, solicited_node
from provisioner.network.agent.model.ports import Port
from provisioner.network.agent.model.state import Chain, Hook, NftRule
from provisioner.network.agent.rules.canonical import rule
from provisioner.network.agent.rules.dhcp import BROADCAST_MAC, dhcp_at_port
from provisioner.network.agent.rules.expressions import (
    ACCEPT,
    DROP,
    Network,
    at_most,
    differs,
    field,
    match,
    meta,
    networks,
    one_of,
    raw,
)

NOBODYS: Final[tuple[Network, ...]] = (
    *(IPv4Network(each) for each in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3")),
    *(IPv6Network(each) for each in ("::/127", "::ffff:0:0/96", "fe80::/10", "ff00::/8", "fd00:ec2::254/128")),
)
"""Addresses to which a host's packet never goes: loopback, link-local (metadata services among them), multicast."""

_PRIORITY: Final = -500
_SOLICITATION: Final = "nd-neighbor-solicit"
_ND_TARGET: Final = raw("th", 64, 128)
_ND_OPTION: Final = raw("th", 192, 64)
_SOURCE_MAC_OPTION: Final = 0x0101  # type 1, of one times eight bytes
_ROUTERS_AND_NEIGHBOURS: Final = (
    "nd-router-solicit",
    "nd-router-advert",
    "nd-neighbor-solicit",
    "nd-neighbor-advert",
    "nd-redirect",
)
_ICMP_OF_ROUTERS: Final = ("redirect", "router-advertisement", "router-solicitation")
_DHCP_SERVERS: Final = (67, 547)
_IS_KNOWN: Final = differs(meta("l4proto"), 255)
"""True of every packet whose protocol can be read. Of one in pieces whose headers do not end in the first, as RFC 7112
has it, it cannot: no rule of a security group that names a protocol would speak of it."""
_ASKING: Final = at_most(20, 20)
"""Enough for a host with two gateways, and little enough for a storm to cost nothing."""


def isolated_port(function: str, device: str, boot: Sequence[NftRule] = (), mac: str = "") -> Chain:
    """Drops all that comes from the host, but what is the boot plane's. `boot`, `mac`: of a host that boots by it."""
    rules = (*_first(mac), *boot) if boot else ()
    return Chain("netdev", chain_name(function), Hook("ingress", _PRIORITY, "drop", device), rules)


def guarded_port(port: Port, device: str, boot: Sequence[NftRule] = ()) -> Chain:
    """`boot`: of a host that boots by this port."""
    rules: list[NftRule] = [*_first(port.mac), *boot]
    if port.of_version(4):
        rules += [*dhcp_at_port(port), *_ipv4(port)]
    if port.of_version(6):
        rules += _ipv6(port)
    return Chain("netdev", chain_name(port.function), Hook("ingress", _PRIORITY, "drop", device), tuple(rules))


def _first(mac: str) -> list[NftRule]:
    return [
        rule(match(field("ether", "type"), one_of(["8021q", "8021ad"])), DROP),
        rule(differs(field("ether", "saddr"), mac), DROP),
        rule(match(field("udp", "sport"), one_of(_DHCP_SERVERS)), DROP),
    ]


def chain_name(function: str) -> str:
    return f"from_host_{function}"


def _ipv4(port: Port) -> list[NftRule]:
    gateways = _texts(port.gateways_of(4))
    (own, *_), behind = _texts(port.hosts(4)), port.behind(4)
    asks = (
        match(field("ether", "daddr"), one_of([GATEWAY_MAC, BROADCAST_MAC])),
        match(field("arp", "htype"), 1),
        match(field("arp", "operation"), "request"),
        match(field("arp", "saddr ether"), port.mac),
    )
    for_the_gateway = match(field("arp", "daddr ip"), one_of(gateways))
    sender = field("arp", "saddr ip")
    rules = [rule(*asks, match(sender, one_of(_texts(port.hosts(4)))), for_the_gateway, _ASKING, ACCEPT)]
    if behind:
        as_itself = {"mangle": {"key": sender, "value": own}}
        rules.append(rule(*asks, match(sender, networks(behind)), for_the_gateway, _ASKING, as_itself, ACCEPT))
    return [
        *rules,
        rule(match(field("icmp", "type"), one_of(_ICMP_OF_ROUTERS)), DROP),
        rule(
            match(field("ether", "daddr"), GATEWAY_MAC),
            match(field("ip", "saddr"), networks(port.of_version(4))),
            differs(field("ip", "daddr"), networks(_nobodys(4))),
            ACCEPT,
        ),
    ]


def _ipv6(port: Port) -> list[NftRule]:
    gateways = _texts(port.gateways_of(6))
    groups = [solicited_node(gateway) for gateway in gateways]
    asked = match(field("ether", "daddr"), one_of(sorted({GATEWAY_MAC, *(mac for _, mac in groups)})))
    from_it_to_the_gateway = (
        match(field("ip6", "nexthdr"), "ipv6-icmp"),
        match(field("ip6", "hoplimit"), 255),
        match(field("ip6", "saddr"), one_of(sorted([link_local(port.mac), *_texts(port.hosts(6))]))),
        match(field("ip6", "daddr"), one_of(sorted({*gateways, *(group for group, _ in groups)}))),
    )
    solicits = (
        match(field("icmpv6", "type"), _SOLICITATION),
        match(_ND_TARGET, one_of([hex(int(gateway)) for gateway in port.gateways_of(6)])),
    )
    its_own_mac = match(_ND_OPTION, _SOURCE_MAC_OPTION << 48 | int(port.mac.replace(":", ""), 16))
    # In the order of the header: nft joins what lies side by side, and prints it in that order.
    return [
        # With one option, the sender's own hardware address; or without any.
        rule(
            asked,
            match(field("ip6", "length"), 32),
            *from_it_to_the_gateway,
            *solicits,
            its_own_mac,
            _ASKING,
            ACCEPT,
        ),
        rule(asked, match(field("ip6", "length"), 24), *from_it_to_the_gateway, *solicits, _ASKING, ACCEPT),
        rule(match(field("icmpv6", "type"), one_of(_ROUTERS_AND_NEIGHBOURS)), DROP),
        rule(
            match(field("ether", "daddr"), GATEWAY_MAC),
            match(field("ip6", "saddr"), networks(port.of_version(6))),
            differs(field("ip6", "daddr"), networks(_nobodys(6))),
            _IS_KNOWN,
            ACCEPT,
        ),
    ]


def _texts(addresses: Sequence[IPv4Address | IPv6Address]) -> list[str]:
    return [str(address) for address in addresses]


def _nobodys(version: int) -> list[Network]:
    return [network for network in NOBODYS if network.version == version]
