"""From what the kernel has to what it shall have: operations, in the order in which nothing passes that must not.

A port arrives in a namespace down; the rules come before anything that it could send is forwarded. What stays is not
touched, and what a new value takes the place of is not deleted first. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from provisioner.network.agent.model.state import (
    HOME,
    LOOPBACK,
    FdbEntry,
    KernelState,
    Link,
    Neighbour,
    Place,
    PlaceState,
    Route,
)
from provisioner.network.agent.operations import (
    AddLink,
    AddNamespace,
    ChangeLink,
    DeleteLink,
    DeleteNamespace,
    Entry,
    LoadChains,
    MoveLink,
    Operation,
    Put,
    Remove,
    SetSysctl,
    sysctl_device,
)

_NOTHING = PlaceState()
_EMPTY_NAMESPACE = PlaceState(links=frozenset({Link(LOOPBACK, "other", up=False)}))
_Step = Callable[[Place, PlaceState, PlaceState], Iterable[Operation]]


def differences(wanted: KernelState, observed: KernelState) -> list[Operation]:
    """What is to be done, in order. Empty: they agree."""
    places = sorted({HOME, *wanted, *observed})
    kept = [place for place in places if place == HOME or place in wanted]
    operations: list[Operation] = [AddNamespace(place) for place in kept if place != HOME and place not in observed]
    now = {place: observed.get(place, _EMPTY_NAMESPACE) for place in places}
    chains_before = {place: state.chains for place, state in now.items()}

    def all_of(*steps: _Step) -> None:
        for step in steps:
            for place in kept:
                operations.extend(step(place, wanted.get(place, _NOTHING), now[place]))

    all_of(partial(_settings, of_devices=False))
    operations += _moves(wanted, now)
    operations += _deleted_links(wanted, now)
    operations += _added_links(wanted, now, of_rules=True)
    for place in kept:
        chains = wanted.get(place, _NOTHING).chains
        if chains != now[place].chains:
            operations.append(LoadChains(place, chains, chains_before[place]))
    operations += _added_links(wanted, now, of_rules=False)
    all_of(_changed_links, partial(_settings, of_devices=True), _switched_on, _entries)
    operations += [DeleteNamespace(place) for place in places if place not in kept]
    return operations


def _settings(place: Place, wanted: PlaceState, observed: PlaceState, *, of_devices: bool) -> Iterable[Operation]:
    """Of devices, or what a device begins with, which is set before there is one."""
    for sysctl in sorted(wanted.sysctls - observed.sysctls):
        if (sysctl_device(sysctl) is not None) == of_devices:
            yield SetSysctl(place, sysctl)


def _moves(wanted: KernelState, now: dict[Place, PlaceState]) -> list[Operation]:
    """Each port to its place; `now` is told what that changes."""
    found: list[Operation] = []
    there = {link.name: (place, link) for place, state in now.items() for link in state.links if link.kind == "port"}
    for place, state in sorted(wanted.items()):
        for link in sorted(each for each in state.links if each.kind == "port"):
            at, seen = there.get(link.name, (place, link))
            if at == place:
                continue
            found.append(MoveLink(at, link.name, place))
            now[at] = _without(now[at], link.name)
            arrived = replace(seen, up=False, master=None)
            now[place] = replace(now[place], links=now[place].links | {arrived})
    return found


def _deleted_links(wanted: KernelState, now: dict[Place, PlaceState]) -> list[Operation]:
    """What is wanted nowhere, or is of another making; with one end of a veth goes the other. Of a namespace that is
    given up, too: it ends some time after its name does, and its VNIs are to be free before."""
    found: list[Operation] = []
    for place in sorted(now):
        ours = {link.name: link for link in wanted.get(place, _NOTHING).links}
        for link in sorted(now[place].links, key=lambda each: each.name):
            if link.kind == "port" or link.name == LOOPBACK or link not in now[place].links:
                continue
            meant = ours.get(link.name)
            if meant is not None and _made_alike(meant, link):
                continue
            found.append(DeleteLink(place, link.name))
            now[place] = _without(now[place], link.name)
            if meant is not None and meant.kind == "veth" and meant.peer is not None and meant.peer_place is not None:
                now[meant.peer_place] = _without(now.get(meant.peer_place, _NOTHING), meant.peer)
    for place, state in sorted(wanted.items()):
        for link in sorted(
            each for each in state.links if each.kind == "veth" and each.peer and each.peer_place is not None
        ):
            peer_place, peer = link.peer_place or HOME, link.peer or ""
            has, its = _has(now[place], link.name), _has(now.get(peer_place, _NOTHING), peer)
            if has and not its:
                found.append(DeleteLink(place, link.name))
                now[place] = _without(now[place], link.name)
    return found


def _added_links(wanted: KernelState, now: dict[Place, PlaceState], *, of_rules: bool) -> list[Operation]:
    """VRFs first, as others are put into them. A port cannot be made: that it is missing was told before.

    `of_rules`: those whose packets are asked for at netdev ingress, which have to be there before the rules are.
    """
    found: list[Operation] = []
    order = {"vrf": 0, "vxlan": 1, "veth": 2, "port": 3, "other": 4}
    for place, state in sorted(wanted.items()):
        for link in sorted(state.links, key=lambda each: (order[each.kind], each.name)):
            if link.kind == "port" or link.name == LOOPBACK or _has(now[place], link.name):
                continue
            if of_rules and link.name not in {each.hook.device for each in state.chains if each.hook is not None}:
                continue
            found.append(AddLink(place, link))
            now[place] = _with_new(now[place], link)
            if link.peer is not None and link.peer_place is not None:
                its = next(each for each in wanted[link.peer_place].links if each.name == link.peer)
                now[link.peer_place] = _with_new(now[link.peer_place], its)
    return found


def _changed_links(place: Place, wanted: PlaceState, observed: PlaceState) -> Iterable[Operation]:
    there = {link.name: link for link in observed.links}
    for link in sorted(wanted.links, key=lambda each: each.name):
        seen = there.get(link.name)
        if seen is None:
            continue
        change = ChangeLink(
            place,
            link.name,
            up=False if seen.up and not link.up else None,
            mtu_bytes=link.mtu_bytes if link.mtu_bytes not in (None, seen.mtu_bytes) else None,
            mac=link.mac if link.mac not in (None, seen.mac) else None,
            master=(link.master or "") if link.master != seen.master else None,
        )
        if change != ChangeLink(place, link.name):
            yield change


def _switched_on(place: Place, wanted: PlaceState, observed: PlaceState) -> Iterable[Operation]:
    down = {link.name for link in observed.links if not link.up}
    for link in sorted(wanted.links, key=lambda each: (each.kind != "vrf", each.name)):
        if link.up and link.name in down:
            yield ChangeLink(place, link.name, up=True)


def _entries(place: Place, wanted: PlaceState, observed: PlaceState) -> Iterable[Operation]:
    """Neighbours before routes that lead to them. What goes, goes last, but FDB entries that new ones would meet."""
    for foreign in sorted(observed.fdb - wanted.fdb):
        yield Remove(place, foreign)
    new: list[Entry] = [
        *sorted(wanted.addresses - observed.addresses),
        *sorted(wanted.neighbours - observed.neighbours),
        *sorted(wanted.fdb - observed.fdb),
        *sorted(wanted.routes - observed.routes, key=_route_order),
    ]
    for entry in new:
        yield Put(place, entry)
    replaced = {key for entry in new if (key := _key(entry)) is not None}
    old: list[Entry] = [
        *sorted(observed.routes - wanted.routes, key=_route_order),
        *sorted(observed.neighbours - wanted.neighbours),
        *sorted(observed.addresses - wanted.addresses),
    ]
    for entry in old:
        if _key(entry) not in replaced:
            yield Remove(place, entry)


def _key(entry: Entry) -> object:
    """Of which a kernel has one; None where entries do not take each other's place."""
    if isinstance(entry, Route):
        return entry.key
    if isinstance(entry, Neighbour):
        return entry.device, entry.address
    return None if isinstance(entry, FdbEntry) else entry


def _route_order(route: Route) -> tuple[bool, str]:
    return route.gateway is not None, route.destination


def _made_alike(meant: Link, seen: Link) -> bool:
    """Whether what cannot be changed later is as it should be."""
    return (meant.kind, meant.vni, meant.local, meant.table) == (seen.kind, seen.vni, seen.local, seen.table)


def _has(state: PlaceState, name: str) -> bool:
    return any(link.name == name for link in state.links)


def _with_new(state: PlaceState, link: Link) -> PlaceState:
    return replace(state, links=state.links | {Link(link.name, link.kind, up=False)})


def _without(state: PlaceState, device: str) -> PlaceState:
    """What is left when a device has gone: all that hangs on it goes with it, base chains that ask it as well."""
    return replace(
        state,
        links=frozenset(link for link in state.links if link.name != device),
        addresses=frozenset(each for each in state.addresses if each.device != device),
        routes=frozenset(each for each in state.routes if each.device != device),
        neighbours=frozenset(each for each in state.neighbours if each.device != device),
        fdb=frozenset(each for each in state.fdb if each.device != device),
        sysctls=frozenset(each for each in state.sysctls if sysctl_device(each) != device),
        chains=frozenset(each for each in state.chains if each.hook is None or each.hook.device != device),
    )
