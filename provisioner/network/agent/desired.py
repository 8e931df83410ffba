"""What the kernel shall have for a spec. Pure: the same spec in the same situation is the same state."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Final

from provisioner.network.agent.boot.plane import HOST_LINK, BootingHost, BootServices
from provisioner.network.agent.model.naming import (
    GATEWAY_MAC,
    boot_link_name,
    boot_namespace,
    peer_link_mac,
    peer_link_name,
    router_address,
    router_mac,
    routing_table,
    vrf_name,
    vxlan_name,
)
from provisioner.network.agent.model.ports import Port
from provisioner.network.agent.model.state import (
    HOME,
    LOOPBACK,
    MAIN_TABLE,
    Address,
    Chain,
    FdbEntry,
    Link,
    Neighbour,
    NftRule,
    Place,
    PlaceState,
    Route,
    Sysctl,
)
from provisioner.network.agent.preflight import Domain, EnforceableSpec
from provisioner.network.agent.rules.boot import boot_at_port, boot_link, plane_chains
from provisioner.network.agent.rules.domain import DomainDevices, domain_chains
from provisioner.network.agent.rules.port import guarded_port, isolated_port
from provisioner.network.agent.rules.underlay import isolation_chains, underlay_chains
from provisioner.network.agent.situation import DpuInputs
from provisioner.network.agent.sysctls import (
    boot_plane_sysctls,
    device_sysctls,
    isolated_sysctls,
    namespace_sysctls,
    released_sysctls,
    vrf_sysctls,
)

# What the kernel shall have for the boot plane, beside its port and in its own namespace. Pure.

USUAL_MTU_BYTES: Final = 1500


def beside_the_port(host: BootingHost, device: str, plane: Place) -> PlaceState:
    """Where its port is, whose interface is `device`."""
    name = boot_link_name(host.function)
    return PlaceState(
        links=frozenset({Link(name, "veth", mtu_bytes=USUAL_MTU_BYTES, peer=HOST_LINK, peer_place=plane)}),
        sysctls=frozenset(isolated_sysctls(name)),
        chains=frozenset({boot_link(host, device)}),
    )


def in_the_plane(host: BootingHost, services: BootServices, port_place: Place) -> PlaceState:
    """Every address is the plane's own, but the host's."""
    name, own = boot_link_name(host.function), str(host.address)
    link = Link(HOST_LINK, "veth", mtu_bytes=USUAL_MTU_BYTES, mac=GATEWAY_MAC, peer=name, peer_place=port_place)
    return PlaceState(
        links=frozenset({link, Link(LOOPBACK, "other")}),
        routes=frozenset({Route("0.0.0.0/0", HOST_LINK, kind="local"), Route(f"{own}/32", HOST_LINK)}),
        neighbours=frozenset({Neighbour(HOST_LINK, own, host.mac)}),
        sysctls=frozenset(boot_plane_sysctls(HOST_LINK)),
        chains=frozenset(plane_chains(host, services)),
    )


PORT_MTU_BYTES: Final = 9216
"""Of a port's device, so that a host which sends too large a packet is told so by its gateway. What a VPC carries is in
the routes to the port and in the domain's other devices."""

METRIC: Final = 64
UNREACHABLE_METRIC: Final = 4278198272
"""The worst that leaves room, as the kernel's vrf.rst advises."""


@dataclass
class _Place:
    links: set[Link] = field(default_factory=set)
    addresses: set[Address] = field(default_factory=set)
    routes: set[Route] = field(default_factory=set)
    neighbours: set[Neighbour] = field(default_factory=set)
    fdb: set[FdbEntry] = field(default_factory=set)
    sysctls: set[Sysctl] = field(default_factory=set)
    chains: set[Chain] = field(default_factory=set)

    def add(self, more: PlaceState) -> None:
        """What another part of the agent wants here, too."""
        for each in dataclasses.fields(self):
            getattr(self, each.name).update(getattr(more, each.name))

    def frozen(self) -> PlaceState:
        return PlaceState(**{each.name: frozenset(getattr(self, each.name)) for each in dataclasses.fields(self)})


def wanted_state(readable: EnforceableSpec, situation: DpuInputs) -> dict[Place, PlaceState]:
    """Every function that the agent knows of and that is not among `readable.ports` is isolated at HOME."""
    places: dict[Place, _Place] = defaultdict(_Place)
    home = places[HOME]
    ports: dict[int, list[Port]] = defaultdict(list)
    for port in readable.ports:
        ports[port.vni].append(port)
    domains: dict[Place, list[DomainDevices]] = defaultdict(list)
    for domain in readable.domains:
        place = situation.place_of(domain.vni)
        _domain(places[place], domain, readable, ports, situation)
        domains[place].append(
            DomainDevices(
                vni=domain.vni,
                ports=tuple((port, situation.interfaces[port.function]) for port in ports[domain.vni]),
                vxlan=vxlan_name(domain.vni),
                links=tuple(peer_link_name(domain.vni, peer) for peer in domain.peers),
            )
        )
    for place, devices in domains.items():
        places[place].chains.update(domain_chains(devices, in_vrfs=situation.backend == "vrf"))
    if readable.vtep:
        home.chains.update(underlay_chains(readable.vtep, {domain.vni: domain.members for domain in readable.domains}))
    host = _boot_plane(places, readable, situation)
    passing = {port.function for port in readable.ports}
    isolated = {
        function: device
        for function, device in situation.interfaces.items()
        if function in situation.largest_mtus and function not in passing
    }
    _isolated(home, isolated, host, _boot_rules(readable, situation, host.function) if host is not None else [])
    return {place: state.frozen() for place, state in places.items()}


def _domain(
    place: _Place,
    domain: Domain,
    readable: EnforceableSpec,
    ports: Mapping[int, list[Port]],
    situation: DpuInputs,
) -> None:
    in_vrf = situation.backend == "vrf"
    master = vrf_name(domain.vni) if in_vrf else None
    table = routing_table(domain.vni) if in_vrf else MAIN_TABLE
    if master is not None:
        place.links.add(Link(master, "vrf", table=table))
        place.sysctls.update(vrf_sysctls(master))
        # What a domain has no route to must not be looked for in the DPU's own table.
        place.routes.update(
            Route(default, table=table, metric=UNREACHABLE_METRIC, kind="unreachable")
            for default in ("0.0.0.0/0", "::/0")
        )
    else:
        place.sysctls.update(namespace_sysctls())
        # Without any address of its own a namespace takes no gateway for valid.
        place.links.add(Link(LOOPBACK, "other"))
    vxlan = vxlan_name(domain.vni)
    place.links.add(
        Link(
            vxlan,
            "vxlan",
            mtu_bytes=domain.mtu_bytes,
            mac=router_mac(readable.vtep),
            master=master,
            vni=domain.vni,
            local=readable.vtep,
        )
    )
    place.sysctls.update(device_sysctls(vxlan, is_port=False))
    _remotes(place, domain, vxlan, table)
    for port in ports[domain.vni]:
        device = situation.interfaces[port.function]
        place.links.add(
            Link(
                device,
                "port",
                mtu_bytes=min(PORT_MTU_BYTES, situation.largest_mtus[port.function]),
                mac=GATEWAY_MAC,
                master=master,
            )
        )
        place.sysctls.update(device_sysctls(device, is_port=True))
        place.chains.add(guarded_port(port, device, _boot_rules(readable, situation, port.function)))
        _port(place, port, device, table, domain.mtu_bytes)
    mtus = {each.vni: each.mtu_bytes for each in readable.domains}
    for peer in domain.peers:
        device = peer_link_name(domain.vni, peer)
        place.links.add(
            Link(
                device,
                "veth",
                mtu_bytes=min(domain.mtu_bytes, mtus[peer]),
                mac=peer_link_mac(domain.vni),
                master=master,
                peer=peer_link_name(peer, domain.vni),
                peer_place=situation.place_of(peer),
            )
        )
        place.sysctls.update(device_sysctls(device, is_port=False))
        _peer(place, device, readable.vtep, peer, ports[peer], table)


def _remotes(place: _Place, domain: Domain, vxlan: str, table: int) -> None:
    for vtep, prefixes in domain.remotes:
        mac = router_mac(vtep)
        place.fdb.add(FdbEntry(vxlan, mac, vtep))
        routers = {version: router_address(vtep, version) for version in {prefix.version for prefix in prefixes}}
        place.neighbours.update(Neighbour(vxlan, router, mac) for router in routers.values())
        place.routes.update(
            Route(prefix.text, vxlan, routers[prefix.version], table=table, metric=METRIC) for prefix in prefixes
        )


def _port(place: _Place, port: Port, device: str, table: int, mtu_bytes: int) -> None:
    for gateway in port.gateways:
        place.addresses.add(Address(device, str(gateway), gateway.max_prefixlen))
    for address in port.addresses:
        place.neighbours.add(Neighbour(device, str(address), port.mac))
        place.routes.add(Route(str(ip_network(address)), device, table=table, metric=METRIC, mtu_bytes=mtu_bytes))
    for prefix, address in port.next_hops():
        place.routes.add(Route(str(prefix), device, str(address), table=table, metric=METRIC, mtu_bytes=mtu_bytes))


def _peer(place: _Place, device: str, vtep: str, peer: int, ports: Iterable[Port], table: int) -> None:
    """The peer's ports on this DPU, by the link; its domain is the neighbour on it."""
    for port in ports:
        for version in (4, 6):
            for prefix in port.of_version(version):
                router = router_address(vtep, version)
                place.neighbours.add(Neighbour(device, router, peer_link_mac(peer)))
                place.routes.add(Route(str(prefix), device, router, table=table, metric=METRIC))


def _boot_rules(readable: EnforceableSpec, situation: DpuInputs, function: str) -> list[NftRule]:
    """Of the port by which a host boots through the DPU."""
    host, services = readable.booting, situation.boot
    if host is None or services is None or host.function != function:
        return []
    return boot_at_port(host, services)


def _boot_plane(places: dict[Place, _Place], readable: EnforceableSpec, situation: DpuInputs) -> BootingHost | None:
    """Beside the port, wherever that is, and in a namespace of its own."""
    host, services = readable.booting, situation.boot
    if host is None or services is None:
        return None
    vnis = {port.function: port.vni for port in readable.ports}
    at = situation.place_of(vnis[host.function]) if host.function in vnis else HOME
    plane = boot_namespace(situation.owner)
    places[at].add(beside_the_port(host, situation.interfaces[host.function], plane))
    places[plane].add(in_the_plane(host, services, at))
    return host


def _isolated(
    home: _Place, interfaces: Mapping[str, str], host: BootingHost | None = None, boot: Sequence[NftRule] = ()
) -> None:
    for function, device in interfaces.items():
        home.links.add(Link(device, "port"))
        home.sysctls.update(isolated_sysctls(device))
        if host is not None and function == host.function:
            home.chains.add(isolated_port(function, device, boot, host.mac))
        else:
            home.chains.add(isolated_port(function, device))
    home.chains.update(isolation_chains(interfaces.values()))


def isolated_state(interfaces: Mapping[str, str]) -> dict[Place, PlaceState]:
    """Every port isolated, and no domain. `interfaces`: by function, those that exist."""
    home = _Place()
    _isolated(home, interfaces)
    return {HOME: home.frozen()}


def released_state(devices: Mapping[str, str | None]) -> dict[Place, PlaceState]:
    """Nothing of ours; the ports' devices at HOME, down. `devices`: the hardware address of each; None: as it is."""
    settings = (each for device in devices for each in released_sysctls(device))
    return {
        HOME: PlaceState(
            links=frozenset(
                Link(device, "port", mtu_bytes=USUAL_MTU_BYTES, mac=mac, up=False) for device, mac in devices.items()
            ),
            sysctls=frozenset(settings),
        )
    }
