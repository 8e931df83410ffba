"""Operations, carried out. What the kernel refuses is told, operation by operation, and stops no other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from socket import if_nametoindex

from provisioner.network.agent import nft
from provisioner.network.agent.model import namespaces
from provisioner.network.agent.model.namespaces import inside, opened
from provisioner.network.agent.model.state import HOME, Address, Neighbour, Place, Route
from provisioner.network.agent.netlink.entries import IndexOf, address, fdb_entry, neighbour, route
from provisioner.network.agent.netlink.links import change_link
from provisioner.network.agent.netlink.socket import NetlinkError, NetlinkRequest, NetlinkSocket
from provisioner.network.agent.nft import NftRefused
from provisioner.network.agent.observe import SYSCTLS
from provisioner.network.agent.operations import (
    AddLink,
    AddNamespace,
    ChangeLink,
    DeleteLink,
    DeleteNamespace,
    LoadChains,
    MoveLink,
    Operation,
    OperationRefused,
    Put,
    Remove,
    SetSysctl,
)
from provisioner.network.agent.rules.tables import FAMILIES, removal, replacement
from provisioner.network.agent.rules.underlay import VXLAN_PORT


def carry_out(operations: Sequence[Operation]) -> list[OperationRefused]:
    """In order. Those that follow one another in one namespace share a socket, and are one write."""
    refused: list[OperationRefused] = []
    for place, group in groupby(operations, key=_where):
        batch = list(group)
        try:
            refused += _in_place(place, batch)
        except OSError as error:
            refused += [OperationRefused(operation, _words(error)) for operation in batch]
    return refused


def _where(operation: Operation) -> Place:
    """Whence it is asked for."""
    from_home = AddNamespace | DeleteNamespace | AddLink | MoveLink
    return HOME if isinstance(operation, from_home) else operation.place


def _in_place(place: Place, operations: Iterable[Operation]) -> Iterator[OperationRefused]:
    """Raises: OSError if the namespace cannot be entered."""
    with inside(place), NetlinkSocket() as kernel:
        for is_entry, group in groupby(operations, key=lambda each: isinstance(each, Put | Remove)):
            batch = list(group)
            if is_entry:
                yield from _entries(kernel, [each for each in batch if isinstance(each, Put | Remove)])
                continue
            for operation in batch:
                try:
                    why = _one(kernel, operation)
                except (OSError, NftRefused) as error:
                    why = _words(error)
                if why is not None:
                    yield OperationRefused(operation, why)


def _entries(kernel: NetlinkSocket, operations: Sequence[Put | Remove]) -> Iterator[OperationRefused]:
    index_of = cache(if_nametoindex)
    requests, sent = [], []
    for operation in operations:
        try:
            requests.append(_entry(operation, index_of))
        except OSError as error:
            if isinstance(operation, Put):  # what is to go has gone with its device
                yield OperationRefused(operation, _words(error))
        else:
            sent.append(operation)
    for at, refusal in sorted(kernel.send(requests).items()):
        if not _is_so_already(sent[at], refusal):
            yield OperationRefused(sent[at], refusal.words)


def _is_so_already(operation: Put | Remove, refusal: NetlinkError) -> bool:
    """ENOENT, ESRCH, ENODEV, EADDRNOTAVAIL: what is to go has gone, with the device or address that it hung on."""
    return isinstance(operation, Remove) and refusal.errno in (2, 3, 19, 99)


def _entry(operation: Put | Remove, index_of: IndexOf) -> NetlinkRequest:
    entry, wanted = operation.entry, isinstance(operation, Put)
    if isinstance(entry, Address):
        return address(entry, index_of, wanted=wanted)
    if isinstance(entry, Route):
        return route(entry, index_of, wanted=wanted)
    if isinstance(entry, Neighbour):
        return neighbour(entry, index_of, wanted=wanted)
    return fdb_entry(entry, index_of, wanted=wanted)


def _one(kernel: NetlinkSocket, operation: Operation) -> str | None:
    """Why it was refused, if it was. Raises: OSError, NftRefused."""
    if isinstance(operation, AddNamespace):
        namespaces.add(operation.place)
    elif isinstance(operation, DeleteNamespace):
        namespaces.delete(operation.place)
    elif isinstance(operation, LoadChains):
        commands = replacement(operation.chains, operation.instead_of) if operation.chains else removal(FAMILIES)
        nft.load(commands)
    elif isinstance(operation, SetSysctl):
        (SYSCTLS / operation.sysctl.path).write_text(operation.sysctl.value)
    elif isinstance(operation, AddLink):
        return _added(kernel, operation)
    elif isinstance(operation, MoveLink):
        with opened(operation.target) as target, inside(operation.place), NetlinkSocket() as there:
            return change_link(there, "set", index=if_nametoindex(operation.name), net_ns_fd=target)
    elif isinstance(operation, DeleteLink):
        return change_link(kernel, "del", index=if_nametoindex(operation.name))
    elif isinstance(operation, ChangeLink):
        return _changed(kernel, operation)
    return None


def _changed(kernel: NetlinkSocket, operation: ChangeLink) -> str | None:
    how: dict[str, object] = {"mtu": operation.mtu_bytes, "address": operation.mac}
    if operation.up is not None:
        how["state"] = "up" if operation.up else "down"
    if operation.master is not None:
        how["master"] = if_nametoindex(operation.master) if operation.master else 0
    return change_link(kernel, "set", index=if_nametoindex(operation.name), **how)


def _added(kernel: NetlinkSocket, operation: AddLink) -> str | None:
    """Asked for from HOME: there a VXLAN device sends and receives, wherever it is itself."""
    link = operation.link
    how: dict[str, object]
    with opened(operation.place) as here, opened(link.peer_place or HOME) as there:
        if link.kind == "vrf":
            how = {"vrf_table": link.table}
        elif link.kind == "vxlan":
            how = {"vxlan_id": link.vni, "vxlan_local": link.local, "vxlan_learning": 0, "vxlan_port": VXLAN_PORT}
        else:
            how = {"peer": {"ifname": link.peer, "net_ns_fd": there}}
        return change_link(kernel, "add", ifname=link.name, kind=link.kind, net_ns_fd=here, **how)


def _words(error: OSError | NftRefused) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
