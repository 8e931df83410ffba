"""What a kernel has, or shall have, of what is ours: the same dataclasses for both, so that they can be compared.

A *place* is a network namespace: HOME, in which the agent runs and the underlay lies, or the name of a domain's own.
With VRFs everything is at HOME.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Place = str
HOME: Final[Place] = ""
MAIN_TABLE: Final = 254
LOOPBACK: Final = "lo"

LinkKind = Literal["port", "vxlan", "veth", "vrf", "other"]
RouteKind = Literal["unicast", "local", "unreachable", "blackhole", "prohibit", "throw"]


@dataclass(frozen=True, order=True)
class Link:
    """A network device. Of a port's, which is not made by us, None means: as it is."""

    name: str
    kind: LinkKind
    mtu_bytes: int | None = None
    mac: str | None = None
    up: bool = True
    master: str | None = None
    vni: int | None = None
    local: str | None = None
    table: int | None = None
    peer: str | None = None
    peer_place: Place | None = None


@dataclass(frozen=True, order=True)
class Address:
    """An address of a device, with no route of its own."""

    device: str
    address: str
    prefix_length: int


@dataclass(frozen=True, order=True)
class Route:
    """A route of a table. Unreachable and its like have no device."""

    destination: str
    device: str | None = None
    gateway: str | None = None
    table: int = MAIN_TABLE
    metric: int = 0
    mtu_bytes: int | None = None
    kind: RouteKind = "unicast"

    @property
    def key(self) -> tuple[int, str, int]:
        """What a kernel holds one route of: another one with it takes its place."""
        return self.table, self.destination, self.metric


@dataclass(frozen=True, order=True)
class Neighbour:
    """A permanent neighbour."""

    device: str
    address: str
    mac: str


@dataclass(frozen=True, order=True)
class FdbEntry:
    """Which DPU a VXLAN device sends frames for `mac` to."""

    device: str
    mac: str
    vtep: str


@dataclass(frozen=True, order=True)
class Sysctl:
    """A setting below /proc/sys/net, such as ipv4/ip_forward."""

    path: str
    value: str


Family = Literal["inet", "netdev"]


@dataclass(frozen=True)
class NftRule:
    """A rule of a chain. `text`: its canonical form, by which it is compared; `source`: JSON, as nft takes it."""

    text: str
    source: str = field(compare=False)


@dataclass(frozen=True)
class Hook:
    """Where a base chain is asked, and what becomes of what it does not decide on."""

    hook: str
    priority: int
    policy: str
    device: str | None = None


@dataclass(frozen=True)
class Chain:
    """A chain of our table, with all its rules."""

    family: Family
    name: str
    hook: Hook | None = None
    rules: tuple[NftRule, ...] = ()


@dataclass(frozen=True)
class PlaceState:
    """All of ours in one network namespace. `marks`: what an earlier agent wrote of the spec that it enforced."""

    links: frozenset[Link] = frozenset()
    addresses: frozenset[Address] = frozenset()
    routes: frozenset[Route] = frozenset()
    neighbours: frozenset[Neighbour] = frozenset()
    fdb: frozenset[FdbEntry] = frozenset()
    sysctls: frozenset[Sysctl] = frozenset()
    chains: frozenset[Chain] = frozenset()
    marks: frozenset[str] = frozenset()


KernelState = Mapping[Place, PlaceState]
