"""What of a host's port belongs to the boot plane, and what passes there: DHCP, TFTP, HTTP, its join, its API server.

At netdev ingress it is handed to the plane's own link, unrouted; all that has the host's boot address and is nothing of
this is dropped. What comes back by that link goes to the host and nowhere else. The plane's namespace takes for itself
what is listened for, and forwards nothing.
"""

from __future__ import annotations

from typing import Final

from provisioner.network.agent.boot.plane import (
    HOST_LINK,
    HTTP_PORT,
    TFTP_PORT,
    TRANSFER_PORTS,
    BootingHost,
    BootServices,
)
from provisioner.network.agent.model.naming import GATEWAY_MAC, boot_link_name
from provisioner.network.agent.model.state import Chain, Hook, NftRule
from provisioner.network.agent.rules.canonical import Expression, rule
from provisioner.network.agent.rules.dhcp import ASKING, BROADCAST_MAC, CLIENT_TO_SERVER, EVERYBODY, NOBODY
from provisioner.network.agent.rules.expressions import ACCEPT, DROP, at_most, differs, field, match, meta, one_of

_PRIORITY: Final = -500
_FILTER: Final = 0
_RESOLVING: Final = at_most(20, 20)
_TRANSFER: Final = {"range": [TRANSFER_PORTS[0], TRANSFER_PORTS[-1]]}


def boot_at_port(host: BootingHost, services: BootServices) -> list[NftRule]:
    """At netdev ingress of the port, after the sender's hardware address was looked at, and before all of the VPC."""
    own, onwards = str(host.address), _to(boot_link_name(host.function))
    from_it = (match(field("ether", "daddr"), GATEWAY_MAC), match(field("ip", "saddr"), own))
    return [
        rule(
            match(field("ether", "daddr"), one_of([GATEWAY_MAC, BROADCAST_MAC])),
            match(field("arp", "htype"), 1),
            match(field("arp", "operation"), "request"),
            match(field("arp", "saddr ether"), host.mac),
            match(field("arp", "saddr ip"), own),
            differs(field("arp", "daddr ip"), own),
            _RESOLVING,
            onwards,
        ),
        rule(
            match(field("ether", "daddr"), BROADCAST_MAC),
            match(field("ip", "saddr"), one_of([NOBODY, own])),
            match(field("ip", "daddr"), EVERYBODY),
            *CLIENT_TO_SERVER,
            ASKING,
            onwards,
        ),
        rule(*from_it, *CLIENT_TO_SERVER, ASKING, onwards),
        *(rule(*from_it, *each, onwards) for each in _services(services)),
        rule(match(field("ip", "saddr"), own), DROP),
    ]


def boot_link(host: BootingHost, device: str) -> Chain:
    """Of the link's end beside the port `device`: what the plane answers."""
    answers = match(field("ether", "saddr"), GATEWAY_MAC), match(field("ether", "type"), one_of(["ip", "arp"]))
    hook = Hook("ingress", _PRIORITY, "drop", boot_link_name(host.function))
    return Chain("netdev", f"to_host_{host.function}", hook, (rule(*answers, _to(device)),))


def plane_chains(host: BootingHost, services: BootServices) -> list[Chain]:
    """Of the plane's namespace."""
    came, own = match(meta("iifname"), HOST_LINK), match(field("ip", "saddr"), str(host.address))
    rules = [
        rule(came, match(field("ip", "saddr"), one_of([NOBODY, str(host.address)])), *CLIENT_TO_SERVER, ACCEPT),
        *(rule(came, own, *each, ACCEPT) for each in _services(services)),
    ]
    return [
        Chain("inet", "input", Hook("input", _FILTER, "drop"), tuple(rules)),
        Chain("inet", "forward", Hook("forward", _FILTER, "drop")),
    ]


def _services(services: BootServices) -> list[tuple[Expression, ...]]:
    """HTTP at any address: images are asked for by their digests, of a rack's cache, too."""
    boot_host = match(field("ip", "daddr"), str(services.boot_host))
    return [
        (match(field("tcp", "dport"), HTTP_PORT),),
        (boot_host, match(field("udp", "dport"), {"set": [TFTP_PORT, _TRANSFER]})),
        *(
            (match(field("ip", "daddr"), str(address)), match(field("tcp", "dport"), port))
            for address, port in services.passages
        ),
    ]


def _to(device: str) -> Expression:
    return {"fwd": {"dev": device}}
