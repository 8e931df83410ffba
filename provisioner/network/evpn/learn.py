"""From what bgpd has heard to the remotes of a DPU's spec: what is believed, what is kept, what is refused. Pure.

What a DPU announces is a claim. It is believed where the controllers have told this DPU that the announcer is a member
of that VPC, where it lies in what the VPC has, so that none takes addresses of a peer, and where no other DPU claims
the same: of two, the one that is enforced already stays, and of two new ones neither comes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, ip_network
from typing import Any, Final, Literal

from provisioner.api.network.dpu_network import DPUVPC, DPUNetworkSpec, RemotePrefixes
from provisioner.network.evpn.identity import (
    Network,
    read_communities,
    read_distinguisher,
    read_prefix,
    read_vpc_mac,
    read_vtep,
)

MOST_ROUTES_READ: Final = 200_000
SETTLED_SECONDS: Final = 5.0
"""So long after a session has begun, what is not announced in it is taken to be gone."""

MOST_OF_A_DPU: Final = 4096
"""What a DPU announces of a VPC beyond that is not believed, all that is new of it: what came first cannot be told."""

Reason = Literal["NotAMember", "OutsideVPC", "OwnAddress", "ClaimedByTwo", "TooMany"]


@dataclass(frozen=True, order=True)
class EvpnRoute:
    """That a DPU says it has `prefix` of the VPC behind it."""

    vni: int
    prefix: str
    vtep: str


@dataclass(frozen=True, order=True)
class RefusedRoute:
    route: EvpnRoute
    reason: Reason


@dataclass(frozen=True)
class HeardRoutes:
    """`contested`: VNI and prefix of routes that bear the distinguisher of another DPU than they lead to. A reflector
    holds such a route instead of that other one's. `unreadable`: how many were not as ours are. `is_connected`: there
    is a session to a reflector; `is_settled`: one has lasted."""

    routes: frozenset[EvpnRoute]
    unreadable: int
    is_settled: bool
    contested: frozenset[tuple[int, str]] = frozenset()
    is_connected: bool = False


NOTHING_HEARD: Final = HeardRoutes(frozenset(), 0, is_settled=False)


@dataclass(frozen=True)
class Learned:
    """`spec`: with the remotes to enforce. `held`: what is believed, to be handed in at the next time; of it `awaited`
    was told by the API server before, and nobody has announced it yet."""

    spec: DPUNetworkSpec
    held: frozenset[EvpnRoute]
    refused: tuple[RefusedRoute, ...]
    awaited: frozenset[EvpnRoute] = frozenset()


def read_heard(routes: Mapping[str, Any], sessions: Mapping[str, Any], asn: int) -> HeardRoutes:
    """`routes`, `sessions`: as bgpd says in JSON. Whatever they hold, nothing is raised."""
    found: set[EvpnRoute] = set()
    contested: set[tuple[int, str]] = set()
    unreadable = seen = 0
    for name, of_distinguisher in routes.items():
        if not isinstance(of_distinguisher, Mapping):
            continue
        distinguisher = read_distinguisher(name)
        for key, entry in of_distinguisher.items():
            if key == "rd":
                continue
            if seen >= MOST_ROUTES_READ:
                break
            seen += 1
            path = _best(entry)
            if path is None or path.get("peerId") == "(unspec)":  # not valid now, or our own
                continue
            route = _route(path, asn)
            if route is None or distinguisher is None:
                unreadable += 1
            elif distinguisher.vtep != route.vtep:
                contested.add((route.vni, route.prefix))
            else:
                found.add(route)
    ages = _session_ages(sessions)
    is_settled = any(age >= SETTLED_SECONDS * 1000 for age in ages)
    return HeardRoutes(frozenset(found), unreadable, is_settled, frozenset(contested), bool(ages))


def read_announced(routes: Mapping[str, Any]) -> frozenset[tuple[int, str]]:
    """VNI and prefix of what bgpd itself announces, as it says in JSON. Whatever that holds, nothing is raised."""
    found = set()
    for name, of_distinguisher in routes.items():
        if isinstance(of_distinguisher, Mapping) and read_distinguisher(name) is not None:
            for entry in of_distinguisher.values():
                path = _best(entry)
                if path is not None and path.get("peerId") == "(unspec)":
                    said = path.get("extendedCommunity")
                    vni = read_vpc_mac(said.get("string") if isinstance(said, Mapping) else None)
                    prefix = read_prefix(path.get("ip"), path.get("ipLen"))
                    if vni is not None and prefix is not None:
                        found.add((vni, str(prefix)))
    return frozenset(found)


def _best(entry: Any) -> Mapping[str, Any] | None:
    paths = entry.get("paths") if isinstance(entry, Mapping) else None
    for path in _flat(paths):
        if path.get("bestpath") and path.get("valid"):
            return path
    return None


def _flat(paths: Any) -> Iterable[Mapping[str, Any]]:
    for each in paths if isinstance(paths, list) else ():
        if isinstance(each, Mapping):
            yield each
        elif isinstance(each, list):
            yield from (path for path in each if isinstance(path, Mapping))


def _route(path: Mapping[str, Any], asn: int) -> EvpnRoute | None:
    said = path.get("extendedCommunity")
    text = said.get("string") if isinstance(said, Mapping) else None
    vni = read_communities(text, asn) if isinstance(text, str) else None
    prefix = read_prefix(path.get("ip"), path.get("ipLen"))
    hops = path.get("nexthops")
    hop = hops[0] if isinstance(hops, list) and len(hops) == 1 else None
    vtep = read_vtep(hop.get("ip")) if isinstance(hop, Mapping) else None
    if path.get("routeType") != 5 or vni is None or prefix is None or vtep is None:
        return None
    return EvpnRoute(vni, str(prefix), vtep)


def _session_ages(sessions: Mapping[str, Any]) -> list[int]:
    """Of those that are established, in milliseconds."""
    peers = sessions.get("peers")
    found = []
    for peer in peers.values() if isinstance(peers, Mapping) else ():
        if isinstance(peer, Mapping) and peer.get("state") == "Established":
            up = peer.get("peerUptimeMsec")
            found.append(up if isinstance(up, int) else 0)
    return found


def told_before(remotes: DPUNetworkSpec, spec: DPUNetworkSpec) -> frozenset[EvpnRoute]:
    """The routes that `remotes`, enforced last, has from the API server: each of that VPC of `spec` in whose space it
    lies. No two that exchange packets have addresses in common."""
    spaces = _spaces_of(spec)
    return frozenset(
        EvpnRoute(vni, prefix, remote.vtep)
        for vpc in remotes.vpcs
        for remote in vpc.remotes
        for prefix in remote.prefixes
        for vni in (vpc.vni, *vpc.peer_vnis)
        if _is_inside(ip_network(prefix), spaces.get(vni, ()))
    )


def learn(
    spec: DPUNetworkSpec, heard: HeardRoutes, held: Collection[EvpnRoute], awaited: Collection[EvpnRoute] = ()
) -> Learned:
    """`spec`: of a DPU, with `members` and without `remotes`. `held`: as the last call returned; `awaited`: what stays
    though no session speaks of it, until somebody does: as its DPU does not announce yet.

    While no session has lasted long enough, what was held stays: reflectors that are away take nobody's network down.
    Nor does a DPU's bgpd that is: who is a member has something in the VPC, so that of one who announces nothing of it
    at all everything stays, until another one announces it.
    """
    members = {vpc.vni: frozenset(vpc.members) for vpc in spec.vpcs}
    own = _own_prefixes(spec)
    spaces = _spaces_of(spec)
    refused: set[RefusedRoute] = set()
    claims: dict[tuple[int, str], set[EvpnRoute]] = defaultdict(set)
    kept = {*held, *awaited}
    flooding = _too_many(heard.routes)
    for route in heard.routes:
        if route.vtep not in members.get(route.vni, ()):
            refused.add(RefusedRoute(route, "NotAMember"))
        elif (route.vni, route.vtep) in flooding and route not in kept:  # before all that costs more
            refused.add(RefusedRoute(route, "TooMany"))
        elif not _is_inside(ip_network(route.prefix), spaces.get(route.vni, ())):
            refused.add(RefusedRoute(route, "OutsideVPC"))
        elif route.prefix in own.get(route.vni, ()):
            refused.add(RefusedRoute(route, "OwnAddress"))
        else:
            claims[route.vni, route.prefix].add(route)
    speaking = {(route.vni, route.vtep) for route in heard.routes}
    stays = {
        route
        for route in kept
        if (
            not heard.is_settled
            or route in heard.routes
            or (route.vni, route.prefix) in heard.contested
            or (
                (route in awaited or (route.vni, route.vtep) not in speaking)
                and (route.vni, route.prefix) not in claims
            )
        )
        and route.vtep in members.get(route.vni, ())
        and route.prefix not in own.get(route.vni, ())
        and _is_inside(ip_network(route.prefix), spaces.get(route.vni, ()))
    }
    keys = {(route.vni, route.prefix): route for route in stays}
    too_many = _too_many({*stays, *(route for said in claims.values() for route in said)})
    for key, said in claims.items():
        keeper = keys.get(key)
        if keeper is None and len(said) == 1 and not too_many.isdisjoint((each.vni, each.vtep) for each in said):
            refused.update(RefusedRoute(route, "TooMany") for route in said)
        elif keeper is None and len(said) == 1:
            keys[key] = next(iter(said))
        else:
            refused.update(RefusedRoute(route, "ClaimedByTwo") for route in said if route != keeper)
    believed = frozenset(keys.values())
    by_vni: dict[int, list[EvpnRoute]] = defaultdict(list)
    for route in sorted(believed):
        by_vni[route.vni].append(route)
    vpcs = tuple(replace(vpc, remotes=_remotes(vpc, spec, by_vni, own)) for vpc in spec.vpcs)
    left = frozenset(route for route in awaited if route in believed and route not in heard.routes)
    return Learned(replace(spec, vpcs=vpcs), believed, tuple(sorted(refused)), left)


def _spaces_of(spec: DPUNetworkSpec) -> dict[int, list[Network]]:
    """Of each VPC its cidrs and routes: what is announced of it must lie in one of them."""
    return {vpc.vni: [ip_network(each) for each in vpc.space] for vpc in spec.vpcs}


def _is_inside(network: Network, spaces: Iterable[Network]) -> bool:
    ours = (space for space in spaces if space.version == network.version)
    return any(network.subnet_of(space) for space in ours)  # type: ignore[arg-type]


def _too_many(routes: Iterable[EvpnRoute]) -> set[tuple[int, str]]:
    """VNI and VTEP of who announces more than anybody may."""
    counts = Counter((route.vni, route.vtep) for route in routes)
    return {each for each, count in counts.items() if count > MOST_OF_A_DPU}


def _own_prefixes(spec: DPUNetworkSpec) -> dict[int, set[str]]:
    found: dict[int, set[str]] = defaultdict(set)
    for port in spec.ports:
        found[port.vni].update(str(ip_network(each)) for each in port.addresses)
        found[port.vni].update(port.prefixes)
    return found


def _remotes(
    vpc: DPUVPC, spec: DPUNetworkSpec, by_vni: Mapping[int, Collection[EvpnRoute]], own: Mapping[int, Collection[str]]
) -> tuple[RemotePrefixes, ...]:
    """A VPC's own routes, by which its packets are known as well; where a port of it passes, those of its peers, too,
    that take nothing of it away; none where it has neither a port nor a peer that has one."""
    here = any(port.vni == vpc.vni and port.state == "Tenant" for port in spec.ports)
    if not here and not vpc.peer_vnis:
        return ()
    behind: dict[str, str] = {}
    taken = own.get(vpc.vni, ())
    for vni in (vpc.vni, *(vpc.peer_vnis if here else ())):
        for route in by_vni.get(vni, ()):
            if route.prefix not in taken:
                behind.setdefault(route.prefix, route.vtep)
    by_vtep: dict[str, list[str]] = defaultdict(list)
    for prefix, vtep in behind.items():
        by_vtep[vtep].append(prefix)
    return tuple(
        RemotePrefixes(vtep=vtep, prefixes=tuple(sorted(prefixes, key=_order)))
        for vtep, prefixes in sorted(by_vtep.items(), key=lambda item: IPv4Address(item[0]))
    )


def _order(prefix: str) -> tuple[int, int, int]:
    network: Network = ip_network(prefix)
    return network.version, int(network.network_address), network.prefixlen
