"""What the kernel has: ports, and all that is ours or lies where only ours may be.

A domain's own namespace is ours as a whole; at HOME our devices, the ports and the tables of our VRFs are.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.network.agent import nft
from provisioner.network.agent.model.namespaces import domains_of, inside
from provisioner.network.agent.model.naming import TABLE, is_ours
from provisioner.network.agent.model.state import HOME, MAIN_TABLE, Link, LinkKind, Place, PlaceState, Sysctl
from provisioner.network.agent.netlink.entries import (
    AF_BRIDGE,
    DUMP_ADDRESSES,
    GET_ADDRESS,
    GET_NEIGHBOUR,
    GET_ROUTE,
    RouteReader,
    dump_neighbours,
    dump_routes,
    read_addresses,
    read_fdb,
    read_neighbours,
)
from provisioner.network.agent.netlink.links import DUMP_HEADER, GET, SeenLink, read_links
from provisioner.network.agent.netlink.socket import NetlinkSocket
from provisioner.network.agent.netlink.tables import chain_devices
from provisioner.network.agent.rules.tables import read_tables
from provisioner.network.agent.rules.underlay import VXLAN_PORT

SYSCTLS: Final = Path("/proc/sys/net")
_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)


@dataclass(frozen=True)
class Observed:
    """HOME and the namespaces of domains."""

    places: Mapping[Place, PlaceState]

    @property
    def vnis(self) -> tuple[int, ...]:
        """Of all VXLAN devices, wanted or not."""
        return tuple(
            sorted({link.vni for state in self.places.values() for link in state.links if link.vni is not None})
        )


class Observer:
    """What one process sees of the kernel, time after time: what it has read once it need not read anew."""

    def __init__(self) -> None:
        self._routes: dict[Place, RouteReader] = {}

    def observe(self, owner: str, interfaces: Collection[str], settings: Mapping[Place, Iterable[str]]) -> Observed:
        """`interfaces`: those of ports. `settings`: paths of what of /proc/sys/net is to be read in each place.

        Raises: OSError and NftRefused, if a dump cannot be made.
        """
        places, readers = {}, {}
        for place in (HOME, *domains_of(owner)):
            with inside(place):
                reader = self._routes.get(place)
                places[place], readers[place] = _observe_here(place, interfaces, settings.get(place, ()), reader)
        self._routes = readers
        return Observed(places)


def _observe_here(
    place: Place, interfaces: Collection[str], settings: Iterable[str], reader: RouteReader | None
) -> tuple[PlaceState, RouteReader]:
    """`reader`: of the routes that were there before."""
    with NetlinkSocket() as kernel:
        seen = read_links(kernel.dump(GET, DUMP_HEADER))
        ours = [
            link
            for link in seen
            if not link.loopback and (place != HOME or link.name in interfaces or is_ours(link.name))
        ]
        devices = {link.index: link.name for link in ours}
        tables = frozenset(link.table for link in ours if link.table is not None)
        if place != HOME:
            tables |= {MAIN_TABLE}
        vxlans = {link.index: link.name for link in ours if link.kind == "vxlan"}
        routes = [body for family in _FAMILIES for body in kernel.dump(GET_ROUTE, dump_routes(family))]
        neighbours = [body for family in _FAMILIES for body in kernel.dump(GET_NEIGHBOUR, dump_neighbours(family))]
        dumps = nft.dump()
        chains, marks = read_tables(dumps, chain_devices(TABLE) if dumps else {})
        if reader is None or not reader.is_for(devices, tables):
            reader = RouteReader(devices, tables)
        found = PlaceState(
            links=frozenset(
                _links([link for link in seen if link in ours or (link.loopback and place != HOME)], seen, interfaces)
            ),
            addresses=frozenset(read_addresses(kernel.dump(GET_ADDRESS, DUMP_ADDRESSES), devices)),
            routes=frozenset(reader.read(routes)),
            neighbours=frozenset(read_neighbours(neighbours, devices)),
            fdb=frozenset(read_fdb(kernel.dump(GET_NEIGHBOUR, dump_neighbours(AF_BRIDGE)), vxlans))
            if vxlans
            else frozenset(),
            sysctls=frozenset(_sysctls(settings)),
            chains=chains,
            marks=marks,
        )
        return found, reader


def _links(ours: Iterable[SeenLink], seen: Iterable[SeenLink], interfaces: Collection[str]) -> Iterable[Link]:
    names = {link.index: link.name for link in seen}
    for link in ours:
        kind: LinkKind = "other"
        if link.name in interfaces:
            kind = "port"
        elif link.kind in ("vxlan", "veth", "vrf"):
            kind = link.kind  # type: ignore[assignment]
        is_vxlan_of_ours = link.kind == "vxlan" and not link.learning and link.port == VXLAN_PORT
        yield Link(
            name=link.name,
            kind=kind,
            mtu_bytes=link.mtu_bytes,
            mac=link.mac,
            up=link.up,
            master=names.get(link.master) if link.master else None,
            vni=link.vni if is_vxlan_of_ours else None,
            local=link.local,
            table=link.table,
        )


def _sysctls(paths: Iterable[str]) -> Iterable[Sysctl]:
    for path in paths:
        with contextlib.suppress(OSError):  # of a device that is not there yet, or of a kernel without it
            yield Sysctl(path, (SYSCTLS / path).read_text().strip())
