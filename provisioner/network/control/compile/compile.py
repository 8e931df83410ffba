"""What one DPU shall enforce, of the VPCs that have ports on it and of their peers. Pure and sorted: of the same facts
comes the same object.

Packets travel in the VNI of the sender's VPC. A DPU with a port in a VPC takes part in those of its peers, too, for
their hosts' packets to its ports arrive in their VNIs. So packets of a VNI come from DPUs with a port in that VPC
alone, and those DPUs are its members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Any, Final

from provisioner.api.machinery.codec import to_json
from provisioner.api.network.card import CardConfiguration
from provisioner.api.network.dpu_network import DPUVPC, DPUEvpn, DPUNetworkSpec, HostBoot, RemotePrefixes
from provisioner.network.control.compile.overlap import is_inside
from provisioner.network.control.compile.room import (
    MOST_PORTS,
    DpuCapacity,
    fitting_ports,
    isolated,
    room_for,
    tenant_of,
)
from provisioner.network.control.compile.view import VPCView, port_of, prefix_order

MOST_KEPT: Final = 8
"""Of what a VPC reaches, for each set of peers."""


def compile_network(
    dpu: str,
    vtep: str,
    views: Mapping[str, VPCView],
    host_boot: HostBoot | None = None,
    card: CardConfiguration | None = None,
    evpn: DPUEvpn | None = None,
) -> DPUNetworkSpec:
    """`views`: by key, at least the VPCs with an endpoint on `dpu`, and their peers; others do not matter. With `evpn`
    what lies behind other DPUs is left for these to say. Of functions more than it can be told of, those that the
    administrators have assigned come first."""
    with_remotes = evpn is None
    room = room_for(dpu, views, with_remotes=with_remotes)
    peers = {peer for _, peer in room.peers}
    found = sorted((v for key, v in views.items() if v.here(dpu) or key in peers), key=lambda view: view.vni)
    here = sorted(
        ((view, each) for view in found for each in view.here(dpu)),
        key=lambda each: (not each[1].place.is_assigned, each[1].place.function),
    )
    ports = [(view, port_of(each, view.vni)) for view, each in here[:MOST_PORTS]]
    told = (port if view.key in room.own else isolated(port) for view, port in ports)
    return DPUNetworkSpec(
        vtep_address=vtep,
        vpcs=tuple(_domain(dpu, each, views, room, with_remotes=with_remotes) for each in found),
        ports=tuple(fitting_ports(told, {each.vni: tenant_of(each.key) for each in found})),
        host_boot=host_boot,
        card=card,
        evpn=evpn,
    )


def to_object(spec: DPUNetworkSpec) -> dict[str, Any]:
    """As JSON, of which the parts that other DPUs are told, too, are shared: read it, never change it."""
    vpcs = []
    for each in spec.vpcs:
        said: dict[str, Any] = to_json(replace(each, remotes=(), members=()))
        if each.remotes:
            said["remotes"] = [_remote(remote) for remote in each.remotes]
        if each.members:
            said["members"] = list(each.members)
        vpcs.append(said)
    found: dict[str, Any] = to_json(replace(spec, vpcs=()))
    return found | ({"vpcs": vpcs} if vpcs else {})


@lru_cache(maxsize=16384)
def _remote(remote: RemotePrefixes) -> dict[str, Any]:
    said: dict[str, Any] = to_json(remote)
    return said


def _domain(dpu: str, view: VPCView, views: Mapping[str, VPCView], room: DpuCapacity, *, with_remotes: bool) -> DPUVPC:
    here, peers = _takes_part(dpu, view, room), _peers(view, views, room)
    takes_part = here or bool(peers)
    reach = _reach(view, peers if here else ()) if takes_part and with_remotes else []
    space = {*view.cidrs, *view.routes} if takes_part and not with_remotes else set()
    return DPUVPC(
        vni=view.vni,
        vpc=view.key,
        mtu_bytes=view.mtu_bytes,
        remotes=tuple(remote for where, remote in reach if where != dpu),
        members=tuple(vtep for where, vtep in view.members if where != dpu) if takes_part else (),
        peer_vnis=tuple(sorted(each.vni for each in peers)),
        space=tuple(sorted(space, key=prefix_order)),
    )


def _takes_part(dpu: str, view: VPCView, room: DpuCapacity) -> bool:
    """Whether hosts of the VPC on the DPU reach something."""
    return view.key in room.own and view.forwards_on(dpu)


def _peers(view: VPCView, views: Mapping[str, VPCView], room: DpuCapacity) -> list[VPCView]:
    """Those with which the VPC exchanges packets on the DPU."""
    return [views[key] for key in view.peers if key in views and room.are_peers(view.key, key)]


def _reach(view: VPCView, peers: Sequence[VPCView]) -> list[tuple[str, RemotePrefixes]]:
    """What hosts of a VPC reach, by the DPU behind which it is, and sorted by that one's address; the same for all
    DPUs, and so kept. Each prefix is behind one: a route takes nobody's address away, and that of a peer none of the
    VPC's own."""
    known = view.kept.get(key := tuple(id(each) for each in peers))
    if known is not None:
        return known[1]
    sources = (view, *peers)
    taken = {host for source in sources for each in source.endpoints for host in each.hosts}
    found = {host: each.place for source in sources for each in source.forwarding for host in each.hosts}
    for source in sources:
        for each in source.forwarding:
            for prefix in each.prefixes:
                if prefix not in taken and (source is view or not is_inside(prefix, (*view.cidrs, *view.routes))):
                    found.setdefault(prefix, each.place)
    by_dpu: dict[tuple[str, str], list[str]] = {}
    for prefix, place in found.items():
        by_dpu.setdefault((place.dpu, place.vtep), []).append(prefix)
    table = [
        (dpu, RemotePrefixes(vtep=vtep, prefixes=tuple(sorted(prefixes, key=prefix_order))))
        for (dpu, vtep), prefixes in sorted(by_dpu.items(), key=lambda item: IPv4Address(item[0][1]))
    ]
    if len(view.kept) >= MOST_KEPT:
        view.kept.clear()  # most of it was made with peers as they were before
    view.kept[key] = tuple(peers), table  # with the peers: while they are held, nothing else has their ids
    return table
