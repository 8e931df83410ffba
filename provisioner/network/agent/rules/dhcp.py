"""What a host may say to the DHCP server of its DPU: nothing but what asks for its own address, and little of that.

It asks by broadcast, in no name or its own, or its gateway, in its own name. What it says to another server is dropped,
and so is what it says as a server. Only of ports that have an IPv4 address for their host.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Final

from provisioner.network.agent.model.naming import GATEWAY_MAC
from provisioner.network.agent.model.ports import Port
from provisioner.network.agent.model.state import NftRule
from provisioner.network.agent.rules.canonical import Expression, rule
from provisioner.network.agent.rules.expressions import ACCEPT, DROP, at_most, field, match, networks, one_of

ASKING: Final = at_most(5, 20)
"""A host that boots asks some ten times: firmware, iPXE and the system, twice or more each."""
NOBODY: Final = str(IPv4Address(0))
EVERYBODY: Final = "255.255.255.255"
BROADCAST_MAC: Final = "ff:ff:ff:ff:ff:ff"
_SERVER: Final = match(field("udp", "dport"), 67)
CLIENT_TO_SERVER: Final = match(field("udp", "sport"), 68), _SERVER


def dhcp_at_port(port: Port) -> list[NftRule]:
    """At netdev ingress, after the sender's hardware address was looked at."""
    if port.leased is None:
        return []
    own, gateway = port.leased
    return [
        rule(match(field("ether", "daddr"), BROADCAST_MAC), *_by_broadcast(own), ASKING, ACCEPT),
        rule(match(field("ether", "daddr"), GATEWAY_MAC), *_to_the_gateway(own, gateway), ASKING, ACCEPT),
        rule(match(field("ip", "saddr"), networks(port.of_version(4))), _SERVER, DROP),
    ]


def dhcp_at_gateway(port: Port, came_by: Expression) -> Iterable[NftRule]:
    """Of what the domain takes for itself. `came_by`: matches the port's device."""
    if port.leased is not None:
        own, gateway = port.leased
        yield rule(came_by, *_by_broadcast(own), ACCEPT)
        yield rule(came_by, *_to_the_gateway(own, gateway), ACCEPT)


def _by_broadcast(own: IPv4Address) -> tuple[Expression, ...]:
    sender = match(field("ip", "saddr"), one_of([NOBODY, str(own)]))
    return sender, match(field("ip", "daddr"), EVERYBODY), *CLIENT_TO_SERVER


def _to_the_gateway(own: IPv4Address, gateway: IPv4Address) -> tuple[Expression, ...]:
    sender = match(field("ip", "saddr"), str(own))
    return sender, match(field("ip", "daddr"), str(gateway)), *CLIENT_TO_SERVER
