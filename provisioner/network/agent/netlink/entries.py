"""Addresses, routes, neighbours and FDB entries as rtnetlink messages, and read from its dumps.

Numbers are in the order of this machine's bytes: little-endian, as all are that this runs on.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final, get_args

from provisioner.network.agent.model.state import Address, FdbEntry, Neighbour, Route, RouteKind
from provisioner.network.agent.netlink.socket import NetlinkRequest, requests_by
from provisioner.network.agent.netlink.wire import (
    CREATE,
    EXCLUSIVE,
    REPLACE,
    attribute,
    attributes,
    read_mac,
    read_u32,
    u32,
)

GET_ADDRESS: Final = 22
NEW_ROUTE, DELETE_ROUTE, GET_ROUTE = 24, 25, 26
NEW_NEIGHBOUR, DELETE_NEIGHBOUR, GET_NEIGHBOUR = 28, 29, 30

AF_BRIDGE: Final = 7
_IFADDR: Final = struct.Struct("=BBBBI")
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_NO_DAD, _NO_PREFIX_ROUTE = 0x02, 0x200

_RTMSG: Final = struct.Struct("=BBBBBBBBI")
_DST, _OIF, _GATEWAY, _PRIORITY, _METRICS, _TABLE, _VIA = 1, 4, 5, 6, 8, 15, 18
_METRIC_MTU: Final = 2
_ONLINK, _CLONED = 4, 0x200
_STATIC: Final = 4
_SCOPE_LINK, _SCOPE_HOST, _SCOPE_ANY = 253, 254, 255
_BY_KERNEL: Final = 2
"""What made a route: of addresses the kernel makes local ones by itself."""
_KINDS: Final[dict[int, RouteKind]] = {
    1: "unicast",
    2: "local",
    6: "blackhole",
    7: "unreachable",
    8: "prohibit",
    9: "throw",
}
_KIND_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}
LOCAL_TABLE: Final = 255

_NDMSG: Final = struct.Struct("=BxxxiHBB")
_NDA_DST, _NDA_LLADDR = 1, 2
_PERMANENT: Final = 0x80
_SELF: Final = 2

DUMP_ADDRESSES: Final = _IFADDR.pack(0, 0, 0, 0, 0)
IndexOf = Callable[[str], int]

assert set(get_args(RouteKind)) == set(_KIND_NUMBERS)  # noqa: S101


def dump_routes(family: int) -> bytes:
    return _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)


def dump_neighbours(family: int) -> bytes:
    return _NDMSG.pack(family, 0, 0, 0, 0)


def _packed(address: str) -> tuple[int, bytes]:
    if ":" in address:
        return socket.AF_INET6, socket.inet_pton(socket.AF_INET6, address)
    return socket.AF_INET, socket.inet_pton(socket.AF_INET, address)


def _mac(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def address(found: Address, index_of: IndexOf, *, wanted: bool) -> NetlinkRequest:
    how = {"index": index_of(found.device), "address": found.address, "prefixlen": found.prefix_length}
    if wanted:
        how["flags"] = _NO_PREFIX_ROUTE | (_NO_DAD if ":" in found.address else 0)
    (request,) = requests_by(lambda batch: batch.addr("replace" if wanted else "del", **how))
    return request


def route(found: Route, index_of: IndexOf, *, wanted: bool) -> NetlinkRequest:
    """`wanted`: takes the place of what has the same key."""
    destination, _, length = found.destination.partition("/")
    family, packed = _packed(destination)
    is_near = family == socket.AF_INET and found.gateway is None and found.kind == "unicast"
    said = _RTMSG.pack(
        family,
        int(length),
        0,
        0,
        found.table if found.table <= LOCAL_TABLE else 0,
        _STATIC if wanted else 0,
        _SCOPE_ANY if not wanted else _SCOPE_HOST if found.kind == "local" else _SCOPE_LINK if is_near else 0,
        _KIND_NUMBERS[found.kind],
        _ONLINK if found.gateway is not None and wanted else 0,
    )
    said += attribute(_DST, packed) + u32(_TABLE, found.table)
    if found.metric:
        said += u32(_PRIORITY, found.metric)
    if found.gateway is not None:
        said += attribute(_GATEWAY, _packed(found.gateway)[1])
    if found.device is not None:
        said += u32(_OIF, index_of(found.device))
    if not wanted:
        return NetlinkRequest(DELETE_ROUTE, 0, said)
    if found.mtu_bytes is not None:
        said += attribute(_METRICS, u32(_METRIC_MTU, found.mtu_bytes))
    return NetlinkRequest(NEW_ROUTE, CREATE | REPLACE, said)


def neighbour(found: Neighbour, index_of: IndexOf, *, wanted: bool) -> NetlinkRequest:
    family, packed = _packed(found.address)
    said = _NDMSG.pack(family, index_of(found.device), _PERMANENT, 0, 0) + attribute(_NDA_DST, packed)
    if not wanted:
        return NetlinkRequest(DELETE_NEIGHBOUR, 0, said)
    return NetlinkRequest(NEW_NEIGHBOUR, CREATE | REPLACE, said + attribute(_NDA_LLADDR, _mac(found.mac)))


def fdb_entry(found: FdbEntry, index_of: IndexOf, *, wanted: bool) -> NetlinkRequest:
    """One that stays is not sent again: of 00:00:00:00:00:00 the kernel refuses to replace it."""
    said = _NDMSG.pack(AF_BRIDGE, index_of(found.device), _PERMANENT, _SELF, 0)
    said += attribute(_NDA_LLADDR, _mac(found.mac)) + attribute(_NDA_DST, socket.inet_aton(found.vtep))
    if not wanted:
        return NetlinkRequest(DELETE_NEIGHBOUR, 0, said)
    return NetlinkRequest(NEW_NEIGHBOUR, CREATE | EXCLUSIVE, said)


def read_addresses(bodies: Iterable[bytes], devices: Mapping[int, str]) -> Iterator[Address]:
    """Those of `devices`, names by index."""
    for body in bodies:
        family, length, _, _, index = _IFADDR.unpack_from(body)
        if index in devices and family in (socket.AF_INET, socket.AF_INET6):
            found = attributes(body, _IFADDR.size)
            packed = found.get(_IFA_LOCAL) or found.get(_IFA_ADDRESS, b"")
            yield Address(devices[index], socket.inet_ntop(family, packed), length)


class RouteReader:
    """Reads routes: those of `tables`, and, of every table but the kernel's local one, those by `devices`.

    It knows what it has read last: most of a table comes again, byte by byte, in the next dump.
    """

    def __init__(self, devices: Mapping[int, str], tables: frozenset[int]) -> None:
        self._devices = dict(devices)
        self._tables = tables
        self._known: dict[bytes, Route | None] = {}

    def is_for(self, devices: Mapping[int, str], tables: frozenset[int]) -> bool:
        return self._devices == devices and self._tables == tables

    def read(self, bodies: Iterable[bytes]) -> Iterator[Route]:
        """Of one whole dump."""
        before = self._known
        self._known = {body: before[body] if body in before else self._route(body) for body in bodies}
        return (route for route in self._known.values() if route is not None)

    def _route(self, body: bytes) -> Route | None:
        family, length, _, _, table, maker, _, number, flags = _RTMSG.unpack_from(body)
        kind = _KINDS.get(number)
        if kind is None or flags & _CLONED or (kind == "local" and maker == _BY_KERNEL):
            return None
        found = attributes(body, _RTMSG.size)
        table = read_u32(found.get(_TABLE)) or table
        index = read_u32(found.get(_OIF))
        if table not in self._tables and (index not in self._devices or table == LOCAL_TABLE):
            return None
        size = 4 if family == socket.AF_INET else 16
        gateway = found.get(_GATEWAY)
        mtu = attributes(found[_METRICS]).get(_METRIC_MTU) if _METRICS in found else None
        return Route(
            destination=f"{socket.inet_ntop(family, found.get(_DST, bytes(size)))}/{length}",
            device=self._devices.get(index, f"index {index}") if index and kind in ("unicast", "local") else None,
            gateway=socket.inet_ntop(family, gateway) if gateway else "another family's" if _VIA in found else None,
            table=table,
            metric=read_u32(found.get(_PRIORITY)),
            mtu_bytes=read_u32(mtu) if mtu else None,
            kind=kind,
        )


def read_neighbours(bodies: Iterable[bytes], devices: Mapping[int, str]) -> Iterator[Neighbour]:
    """The permanent ones: others the kernel has learned, and forgets."""
    for body in bodies:
        family, index, state, _, _ = _NDMSG.unpack_from(body)
        if index in devices and state & _PERMANENT and family in (socket.AF_INET, socket.AF_INET6):
            found = attributes(body, _NDMSG.size)
            if _NDA_DST in found:
                mac = read_mac(found.get(_NDA_LLADDR, b""))
                yield Neighbour(devices[index], socket.inet_ntop(family, found[_NDA_DST]), mac)


def read_fdb(bodies: Iterable[bytes], devices: Mapping[int, str]) -> Iterator[FdbEntry]:
    for body in bodies:
        _, index, _, _, _ = _NDMSG.unpack_from(body)
        if index in devices:
            found = attributes(body, _NDMSG.size)
            if _NDA_DST in found:
                mac = read_mac(found.get(_NDA_LLADDR, b""))
                yield FdbEntry(devices[index], mac, str(ip_address(found[_NDA_DST])))
