"""What one DPU shall enforce, of the VPCs that have ports on it and of their peers. Pure and sorted: of the same facts
comes the same object.

Packets travel in the VNI of the sender's VPC. A DPU with a port in a VPC takes part in those of its peers, too, for
their hosts' packets to its ports arrive in their VNIs. So packets of a VNI come from DPUs with a port in that VPC
alone, and those DPUs are its members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Final

from provisioner.api.dpu_network import DPUVPC, DPUNetworkSpec, RemotePrefixes
from provisioner.network.control.compile.view import VPCView, port_of, prefix_order

MOST_VPCS: Final = 256
"""What a DPUNetwork holds. Peers of the VPCs that come last are left out beyond that."""


def compile_network(dpu: str, vtep: str, views: Mapping[str, VPCView]) -> DPUNetworkSpec:
    """`views`: by key, at least the VPCs with an endpoint on `dpu`, and their peers; others do not matter."""
    domains = _domains(dpu, views)
    ports = [port_of(each, view.vni) for view in views.values() for each in view.here(dpu)]
    return DPUNetworkSpec(
        vtep_address=vtep,
        vpcs=tuple(sorted((_domain(dpu, each, domains) for each in domains.values()), key=lambda each: each.vni)),
        ports=tuple(sorted(ports, key=lambda each: each.function)),
    )


def _domains(dpu: str, views: Mapping[str, VPCView]) -> dict[str, VPCView]:
    """The VPCs in which the DPU takes part."""
    own = {key: view for key, view in sorted(views.items()) if view.here(dpu)}
    found = dict(own)
    for view in own.values():
        for key in view.peers if view.forwards_on(dpu) else ():
            if key in views and len(found) < MOST_VPCS:
                found.setdefault(key, views[key])
    return found


def _domain(dpu: str, view: VPCView, domains: Mapping[str, VPCView]) -> DPUVPC:
    here = view.forwards_on(dpu)
    peers = [domains[key] for key in view.peers if key in domains and (here or domains[key].forwards_on(dpu))]
    takes_part = here or bool(peers)
    return DPUVPC(
        vni=view.vni,
        vpc=view.key,
        mtu_bytes=view.mtu_bytes,
        remotes=_remotes(dpu, view, peers if here else ()) if takes_part else (),
        members=tuple(_by_address(each.place.vtep for each in view.elsewhere(dpu))) if takes_part else (),
        peer_vnis=tuple(sorted(each.vni for each in peers)),
    )


def _remotes(dpu: str, view: VPCView, peers: Sequence[VPCView]) -> tuple[RemotePrefixes, ...]:
    """Each prefix is behind one card. A route takes nobody's address away, and that of a peer none of the VPC's own."""
    sources = (view, *peers)
    taken = {host for source in sources for each in source.endpoints for host in each.hosts}
    found = {host: each.place.vtep for source in sources for each in source.elsewhere(dpu) for host in each.hosts}
    for source in sources:
        for each in source.elsewhere(dpu):
            for prefix in each.prefixes:
                if prefix not in taken and (source is view or not _is_inside(prefix, (*view.cidrs, *view.routes))):
                    found.setdefault(prefix, each.place.vtep)
    by_vtep: dict[str, list[str]] = {}
    for prefix, vtep in found.items():
        by_vtep.setdefault(vtep, []).append(prefix)
    return tuple(
        RemotePrefixes(vtep=vtep, prefixes=tuple(sorted(by_vtep[vtep], key=prefix_order)))
        for vtep in _by_address(by_vtep)
    )


def _is_inside(prefix: str, others: Iterable[str]) -> bool:
    """Whether `prefix` would take addresses of one of `others` away: it is as long, or longer."""
    subnet = ip_network(prefix)
    return any(_is_subnet(subnet, ip_network(each)) for each in others)


def _is_subnet(subnet: IPv4Network | IPv6Network, other: IPv4Network | IPv6Network) -> bool:
    if isinstance(subnet, IPv4Network) and isinstance(other, IPv4Network):
        return subnet.subnet_of(other)
    if isinstance(subnet, IPv6Network) and isinstance(other, IPv6Network):
        return subnet.subnet_of(other)
    return False


def _by_address(vteps: Iterable[str]) -> list[str]:
    return sorted(set(vteps), key=IPv4Address)
