"""What a routing domain forwards, and the little that it takes for itself. Whatever is not named is dropped.

A packet goes from a port to another port, to another DPU or to a peer's domain; from another DPU to a port or to a
peer's domain; from a peer's domain to a port. Nothing passes through.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.network.agent.model.ports import Port
from provisioner.network.agent.model.state import Chain, Hook, NftRule
from provisioner.network.agent.rules.canonical import Expression, rule
from provisioner.network.agent.rules.dhcp import dhcp_at_gateway
from provisioner.network.agent.rules.expressions import (
    ACCEPT,
    DROP,
    at_most,
    field,
    goto,
    jump,
    match,
    meta,
    one_of,
    verdict_of,
)
from provisioner.network.agent.rules.security_group import egress_chain, egress_name, ingress_chain, ingress_name

_RAW: Final = -300
_FILTER: Final = 0
_PINGS: Final = at_most(100, 50)


@dataclass(frozen=True)
class DomainDevices:
    """The devices of one domain: its ports with their interfaces, its VXLAN device, its ends of peer links."""

    vni: int
    ports: tuple[tuple[Port, str], ...]
    vxlan: str
    links: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        return (*(device for _, device in self.ports), self.vxlan, *self.links)


def domain_chains(domains: Sequence[DomainDevices], *, in_vrfs: bool) -> list[Chain]:
    """Of all domains of a place. In VRFs the place is the DPU's own, too, and what is not the domains' is let alone."""
    if not domains:
        return []
    came_by = meta("sdifname" if in_vrfs else "iifname")
    policy = "accept" if in_vrfs else "drop"
    devices = [device for domain in domains for device in domain.all]
    forward = [rule(verdict_of(came_by, {device: goto(_from(device)) for device in devices}))]
    if in_vrfs:
        # A device that is not in its VRF would be routed by the DPU's own table.
        forward += [rule(match(meta(way), one_of(devices)), DROP) for way in ("iifname", "oifname")]
    chains = [
        Chain("inet", "sources", Hook("prerouting", _RAW, "accept"), _sources(domains, in_vrfs=in_vrfs)),
        Chain("inet", "forward", Hook("forward", _FILTER, policy), tuple(forward)),
        _input(domains, in_vrfs=in_vrfs, policy=policy),
    ]
    for domain in domains:
        chains += _forwarding(domain)
    return chains


def _sources(domains: Sequence[DomainDevices], *, in_vrfs: bool) -> tuple[NftRule, ...]:
    """What another DPU sends must come from an address that is routed back to it; answers may take another way between
    peers, so that their links are not asked."""
    rules = [
        rule(
            match(meta("iifname"), one_of([domain.vxlan for domain in domains])),
            match({"fib": {"result": "oif", "flags": ["saddr", "iif"]}}, False),
            DROP,
        )
    ]
    if in_vrfs:
        # Tenants have the same addresses: connections are told apart by the zone of their domain.
        for zone, domain in _zones(domains):
            if any(port.is_stateful for port, _ in domain.ports):
                rules.append(
                    rule(
                        match(meta("iifname"), one_of(list(domain.all))),
                        {"mangle": {"key": {"ct": {"key": "zone"}}, "value": zone}},
                    )
                )
    return tuple(rules)


def _zones(domains: Iterable[DomainDevices]) -> list[tuple[int, DomainDevices]]:
    """A zone for each domain, 1 to 65535: by its VNI, the next free one where two would share it."""
    taken: set[int] = set()
    found = []
    for domain in sorted(domains, key=lambda each: each.vni):
        zone = domain.vni % 0xFFFF + 1
        while zone in taken:
            zone = zone % 0xFFFF + 1
        taken.add(zone)
        found.append((zone, domain))
    return found


def _input(domains: Iterable[DomainDevices], *, in_vrfs: bool, policy: str) -> Chain:
    """A host may ping its own gateways, ask for their hardware address, and for its own address by DHCP."""
    rules: list[NftRule] = []
    for domain in domains:
        for port, device in domain.ports:
            from_it = match(meta("sdifname" if in_vrfs else "iifname"), device)
            rules += dhcp_at_gateway(port, from_it)
            for version, family, echo in ((4, "ip", "icmp"), (6, "ip6", "icmpv6")):
                gateways = [str(gateway) for gateway in port.gateways_of(version)]
                if gateways:
                    rules.append(
                        rule(
                            from_it,
                            match(field(family, "daddr"), one_of(gateways)),
                            match(field(echo, "type"), "echo-request"),
                            _PINGS,
                            ACCEPT,
                        )
                    )
            if port.gateways_of(6):
                # netdev ingress has looked at it. To a VRF's multicast groups a packet comes by the device itself.
                rules += [
                    rule(match(meta(came_by), device), match(field("icmpv6", "type"), "nd-neighbor-solicit"), ACCEPT)
                    for came_by in (("iifname", "sdifname") if in_vrfs else ("iifname",))
                ]
    if in_vrfs:
        devices = [device for domain in domains for device in domain.all]
        rules += [rule(match(meta(came_by), one_of(devices)), DROP) for came_by in ("iifname", "sdifname")]
    return Chain("inet", "input", Hook("input", _FILTER, policy), tuple(rules))


def _forwarding(domain: DomainDevices) -> list[Chain]:
    to_ports = {device: goto(ingress_name(port.function)) for port, device in domain.ports}
    to_links = dict.fromkeys(domain.links, ACCEPT)
    chains = []
    for port, device in domain.ports:
        leave: dict[str, Expression] = {**to_ports, domain.vxlan: ACCEPT, **to_links}
        chains += [
            egress_chain(port),
            ingress_chain(port),
            _path(device, leave, rule(jump(egress_name(port.function)))),
        ]
    chains.append(_path(domain.vxlan, {**to_ports, **to_links}))
    chains += [_path(link, to_ports) for link in domain.links]
    return chains


def _path(device: str, leave: dict[str, Expression], *before: NftRule) -> Chain:
    onwards = [rule(verdict_of(meta("oifname"), leave))] if leave else []
    return Chain("inet", _from(device), None, (*before, *onwards, rule(DROP)))


def _from(device: str) -> str:
    return f"from_{device}"
