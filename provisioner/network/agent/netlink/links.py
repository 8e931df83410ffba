"""Network devices as rtnetlink messages, and read from its dumps."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from provisioner.network.agent.netlink.socket import NetlinkRequest
from provisioner.network.agent.netlink.wire import CREATE, EXCLUSIVE, attribute, attributes, text, u8, u32

NEW, DELETE, GET = 16, 17, 18
_INFO: Final = struct.Struct("=BxHiII")
_ADDRESS, _NAME, _MTU, _LINK, _MASTER, _LINK_INFO, _NET_NS_FD, _MAX_MTU, _PERMANENT = (
    1,
    3,
    4,
    5,
    10,
    18,
    28,
    51,
    54,
)
_KIND, _DATA = 1, 2
_VXLAN_ID, _VXLAN_LOCAL, _VXLAN_LEARNING, _VXLAN_PORT = 1, 4, 7, 15
_VETH_PEER: Final = 1
_VRF_TABLE: Final = 1
_UP: Final = 1

DUMP_HEADER: Final = _INFO.pack(0, 0, 0, 0, 0)


@dataclass(frozen=True)
class SeenLink:
    """A device as the kernel tells of it."""

    index: int
    name: str
    kind: str
    mtu_bytes: int
    largest_mtu_bytes: int
    mac: str
    up: bool
    loopback: bool
    master: int
    link: int
    vni: int | None
    local: str | None
    learning: bool
    port: int | None
    table: int | None
    permanent_mac: str | None


def read_links(bodies: Iterable[bytes]) -> list[SeenLink]:
    return [_read(body) for body in bodies]


def _read(body: bytes) -> SeenLink:
    _, _, index, flags, _ = _INFO.unpack_from(body)
    found = attributes(body, _INFO.size)
    info = attributes(found.get(_LINK_INFO, b""))
    kind = _text(info.get(_KIND, b""))
    data = attributes(info.get(_DATA, b""))
    is_vxlan = kind == "vxlan"
    mtu = _u32(found.get(_MTU))
    return SeenLink(
        index=index,
        name=_text(found.get(_NAME, b"")),
        kind=kind,
        mtu_bytes=mtu,
        largest_mtu_bytes=_u32(found.get(_MAX_MTU)) or 65535,
        mac=_mac(found.get(_ADDRESS, b"")),
        up=bool(flags & _UP),
        loopback=bool(flags & 8),
        master=_u32(found.get(_MASTER)),
        link=_u32(found.get(_LINK)),
        vni=_u32(data.get(_VXLAN_ID)) if is_vxlan else None,
        local=socket.inet_ntoa(data[_VXLAN_LOCAL]) if is_vxlan and _VXLAN_LOCAL in data else None,
        learning=is_vxlan and data.get(_VXLAN_LEARNING, b"\1") != b"\0",
        port=int.from_bytes(data[_VXLAN_PORT], "big") if is_vxlan and _VXLAN_PORT in data else None,
        table=_u32(data.get(_VRF_TABLE)) if kind == "vrf" else None,
        permanent_mac=_mac(found[_PERMANENT]) if any(found.get(_PERMANENT, b"")) else None,
    )


def _mac(octets: bytes) -> str:
    return ":".join(f"{octet:02x}" for octet in octets)


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


def _u32(value: bytes | None) -> int:
    return int.from_bytes(value[:4], "little") if value else 0


def new_vxlan(name: str, vni: int, local: str, port: int, namespace_fd: int) -> NetlinkRequest:
    """Its packets go through the namespace of the socket that this is sent by, wherever the device itself is."""
    data = (
        u32(_VXLAN_ID, vni)
        + attribute(_VXLAN_LOCAL, socket.inet_aton(local))
        + u8(_VXLAN_LEARNING, 0)
        + attribute(_VXLAN_PORT, port.to_bytes(2, "big"))
    )
    return _new(text(_NAME, name) + u32(_NET_NS_FD, namespace_fd) + _of_kind("vxlan", data))


def new_vrf(name: str, table: int) -> NetlinkRequest:
    return _new(text(_NAME, name) + _of_kind("vrf", u32(_VRF_TABLE, table)))


def new_veth(name: str, namespace_fd: int, peer: str, peer_namespace_fd: int) -> NetlinkRequest:
    """Both ends, each in its namespace."""
    its = _INFO.pack(0, 0, 0, 0, 0) + text(_NAME, peer) + u32(_NET_NS_FD, peer_namespace_fd)
    where = u32(_NET_NS_FD, namespace_fd)
    return _new(text(_NAME, name) + where + _of_kind("veth", attribute(_VETH_PEER, its)))


def set_link(
    index: int,
    *,
    up: bool | None = None,
    mtu_bytes: int | None = None,
    mac: str | None = None,
    master: int | None = None,
    namespace_fd: int | None = None,
) -> NetlinkRequest:
    """`master`: 0 for none."""
    said = b""
    if mtu_bytes is not None:
        said += u32(_MTU, mtu_bytes)
    if mac is not None:
        said += attribute(_ADDRESS, bytes.fromhex(mac.replace(":", "")))
    if master is not None:
        said += u32(_MASTER, master)
    if namespace_fd is not None:
        said += u32(_NET_NS_FD, namespace_fd)
    flags, change = (_UP if up else 0, _UP) if up is not None else (0, 0)
    return NetlinkRequest(NEW, 0, _INFO.pack(0, 0, index, flags, change) + said)


def delete_link(index: int) -> NetlinkRequest:
    return NetlinkRequest(DELETE, 0, _INFO.pack(0, 0, index, 0, 0))


def _new(said: bytes) -> NetlinkRequest:
    return NetlinkRequest(NEW, CREATE | EXCLUSIVE, _INFO.pack(0, 0, 0, 0, 0) + said)


def _of_kind(kind: str, data: bytes) -> bytes:
    return attribute(_LINK_INFO, text(_KIND, kind) + attribute(_DATA, data))
