"""What a route reflector's bgpd shall run with: of each DPU it takes routes of the VPCs that the DPU has, and tells it
those, and no others. Pure.

It does not look at prefixes, nor count them: FRR 8.4 matches no prefix-list against a route of type 5, and has no
`maximum-prefix` for EVPN. Which of a VPC's addresses are
behind which of its DPUs is not known here; see `learn.py` for what receivers make of two who say they have one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from provisioner.network.evpn.configuration import Configuration, Section
from provisioner.network.evpn.identity import communities, route_target
from provisioner.network.evpn.speaker import Fabric


@dataclass(frozen=True)
class ReflectorClient:
    """A DPU. `sends`: VPCs with a port on it. `takes`: those and their peers."""

    vtep: str
    sends: frozenset[int]
    takes: frozenset[int]


def reflector(address: str, fabric: Fabric, clients: Iterable[ReflectorClient]) -> Configuration:
    """`address`: the reflector's own on the underlay. A client without VPCs says and is told nothing."""
    clients = sorted(clients, key=lambda each: IPv4Address(each.vtep))
    bgp = f"router bgp {fabric.asn}"
    found: dict[Section, tuple[str, ...]] = {}
    lists: list[str] = []
    peers: list[str] = []
    policies: list[str] = []
    for client in clients:
        vtep = client.vtep
        lists += [
            f"bgp extcommunity-list expanded from-{vtep} seq {vni} permit ^{communities(fabric.asn, vni)}$"
            for vni in sorted(client.sends)
        ]
        lists += [
            f"bgp extcommunity-list standard to-{vtep} seq {vni} permit rt {route_target(fabric.asn, vni)}"
            for vni in sorted(client.takes)
        ]
        # A list that does not exist is matched by nothing: without VPCs nothing passes.
        found[(f"route-map from-{vtep} permit 10",)] = (
            f"match extcommunity from-{vtep}",
            "match evpn route-type prefix",
            f"set ip next-hop {vtep}",
        )
        found[(f"route-map to-{vtep} permit 10",)] = (f"match extcommunity to-{vtep}",)
        peers += [
            f"neighbor {vtep} remote-as {fabric.asn}",
            f"neighbor {vtep} passive",
            f"neighbor {vtep} advertisement-interval 0",
        ]
        policies += [
            f"neighbor {vtep} route-reflector-client",
            # What it has said is kept as it was: else, to take a VPC from it, it would have to be asked to say it anew.
            f"neighbor {vtep} soft-reconfiguration inbound",
            f"neighbor {vtep} route-map from-{vtep} in",
            f"neighbor {vtep} route-map to-{vtep} out",
            f"neighbor {vtep} activate",  # once all of that is there
        ]
    found[()] = tuple(lists)
    found[(bgp,)] = (
        f"bgp router-id {address}",
        "no bgp default ipv4-unicast",
        f"bgp cluster-id {address}",
        fabric.timers,
        *peers,
    )
    if policies:  # bgpd does not print an empty one
        found[bgp, "address-family l2vpn evpn"] = tuple(policies)
    return found
