"""What of all that a DPU is to enforce fits into its one object. Pure.

A DPU has several tenants where functions of its card are given to others. Each has its share, whatever the others ask
for, and more where these leave something: nobody is isolated, or loses a peer, for what another tenant has made. What
does not fit is told to who has asked for it. Of one tenant its own VPCs go before their peers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from provisioner.api.network.dpu_network import DPUPort
from provisioner.network.control.compile.security import size_of_rule
from provisioner.network.control.compile.view import VPCView
from provisioner.rules.shares import fitting

MOST_PORTS: Final = 256
MOST_VPCS: Final = 256
"""With the peers of those that have ports."""
MOST_BYTES_OF_RULES: Final = 524288
"""Of all ports together. An object of the API server has 1.5 MiB."""
MOST_BYTES_OF_REACH: Final = 524288
"""Of what all VPCs together reach behind other DPUs."""
MOST_DPUS: Final = 4096
"""In one VPC, with those of its peers."""


@dataclass(frozen=True, kw_only=True)
class DpuCapacity:
    """What of the VPCs with ports on a DPU it is told, by their keys. own: those that reach something. peers: VPC and
    peer, of those that exchange packets there. left_out: the same, of those that do not for want of room."""

    own: frozenset[str]
    peers: frozenset[tuple[str, str]]
    left_out: frozenset[tuple[str, str]]

    def are_peers(self, one: str, other: str) -> bool:
        return (one, other) in self.peers or (other, one) in self.peers


def room_for(dpu: str, views: Mapping[str, VPCView], *, with_remotes: bool) -> DpuCapacity:
    """`views`: as `compile_network` takes them. with_remotes: whether the DPU is told what lies behind other ones."""
    here = {key: view for key, view in views.items() if view.here(dpu)}
    wanted = {
        (key, peer) for key, view in here.items() if view.forwards_on(dpu) for peer in view.peers if peer in views
    }
    dpus = {key: view.dpus for key, view in here.items()}
    for key, peer in wanted:
        dpus[key] += views[peer].dpus
    # A peer's domain comes to a tenant once, however many of its VPCs on the DPU have the peer; its remotes to each.
    sizes = {("", key): (tenant_of(key), 0, _size(view, with_remotes)) for key, view in here.items()}
    counts: dict[tuple[str, str], tuple[str, int, int]] = {}
    for key, peer in wanted:
        tenant, remotes = tenant_of(key), 0
        if with_remotes:
            remotes = views[peer].reach_bytes if dpus[key] <= MOST_DPUS else MOST_BYTES_OF_REACH + 1
        domain = 0 if peer in here else _size(views[peer], with_remotes)
        _, _, before = sizes.get((tenant, peer), (tenant, 1, domain))
        sizes[tenant, peer] = tenant, 1, before + remotes
        counts[tenant, peer] = tenant, 1, int(peer not in here)
    few = fitting(counts, MOST_VPCS - len(here))
    fits = fitting({each: size for each, size in sizes.items() if each in few or not each[0]}, MOST_BYTES_OF_REACH)
    own = frozenset(key for key in here if ("", key) in fits)
    told_of = {
        (key, peer)
        for key, peer in wanted
        if key in own and (peer in own or peer not in here) and (tenant_of(key), peer) in fits
    }
    peers = frozenset((one, two) for one, two in told_of if (two, one) in told_of or (two, one) not in wanted)
    return DpuCapacity(own=own, peers=peers, left_out=frozenset(wanted) - peers)


def has_room(function: str, assigned: Collection[str], claimed: Iterable[str]) -> bool:
    """Whether a DPU can be told of `function`. assigned: those that its administrators have named, for which room is
    kept; all others are of the server's tenant, who has the rest. claimed: all for which attachments are told of."""
    if function in assigned:
        return True
    others = sorted({*claimed}.difference(assigned))
    left = MOST_PORTS - len(assigned)
    return function in others[:left] if function in others else len(others) < left


def fitting_ports(ports: Iterable[DPUPort], tenants: Mapping[int, str]) -> list[DPUPort]:
    """By function; one whose rules do not fit lets nothing pass. tenants: by VNI."""
    kept = sorted(ports, key=lambda each: each.function)
    sizes = {each.function: sum(size_of_rule(rule.ports, rule.cidrs) for rule in each.rules) for each in kept}
    fits = fitting({each.function: (tenants[each.vni], 0, sizes[each.function]) for each in kept}, MOST_BYTES_OF_RULES)
    return [each if each.function in fits else isolated(each) for each in kept]


def isolated(port: DPUPort) -> DPUPort:
    """As it is told when there is no room for it."""
    return replace(port, state="Isolated", rules=()) if port.state == "Tenant" else port


def tenant_of(vpc: str) -> str:
    """By the key of a VPC."""
    return vpc.partition("/")[0]


def _size(view: VPCView, with_remotes: bool) -> int:
    """About how many bytes its domain is. More than there is room for if one of its lists is longer than it may be."""
    if view.dpus > MOST_DPUS:
        return MOST_BYTES_OF_REACH + 1
    space = sum(len(prefix) + 3 for prefix in (*view.cidrs, *view.routes))
    return 18 * len(view.members) + (view.reach_bytes if with_remotes else space)
