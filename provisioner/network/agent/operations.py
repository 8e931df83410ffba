"""What can be done to a kernel. Each says in words of `ip`, `bridge`, `sysctl` and `nft` what it does."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.network.agent.model.naming import TABLE
from provisioner.network.agent.model.state import (
    HOME,
    MAIN_TABLE,
    Address,
    Chain,
    FdbEntry,
    Link,
    Neighbour,
    Place,
    Route,
    Sysctl,
)

Entry = Address | Route | Neighbour | FdbEntry


@dataclass(frozen=True)
class AddNamespace:
    place: Place

    def words(self) -> str:
        return f"ip netns add {self.place}"


@dataclass(frozen=True)
class DeleteNamespace:
    place: Place

    def words(self) -> str:
        return f"ip netns delete {self.place}"


@dataclass(frozen=True)
class AddLink:
    """With a veth its other end, too."""

    place: Place
    link: Link

    def words(self) -> str:
        return f"{_ip(self.place)} link add {self.link.name} type {self.link.kind}"


@dataclass(frozen=True)
class DeleteLink:
    place: Place
    name: str

    def words(self) -> str:
        return f"{_ip(self.place)} link delete {self.name}"


@dataclass(frozen=True)
class MoveLink:
    """A port's device, which arrives down and without addresses."""

    place: Place
    name: str
    target: Place

    def words(self) -> str:
        return f"{_ip(self.place)} link set {self.name} netns {self.target or 'of the agent'}"


@dataclass(frozen=True)
class ChangeLink:
    """None: as it is. `master` "": none."""

    place: Place
    name: str
    up: bool | None = None
    mtu_bytes: int | None = None
    mac: str | None = None
    master: str | None = None

    def words(self) -> str:
        said = [f"{_ip(self.place)} link set {self.name}"]
        if self.mtu_bytes is not None:
            said.append(f"mtu {self.mtu_bytes}")
        if self.mac is not None:
            said.append(f"address {self.mac}")
        if self.master is not None:
            said.append(f"master {self.master}" if self.master else "nomaster")
        if self.up is not None:
            said.append("up" if self.up else "down")
        return " ".join(said)


@dataclass(frozen=True)
class SetSysctl:
    place: Place
    sysctl: Sysctl

    def words(self) -> str:
        name = self.sysctl.path.replace("/", ".")
        inside = f"ip netns exec {self.place} " if self.place != HOME else ""
        return f"{inside}sysctl -w net.{name}={self.sysctl.value}"


@dataclass(frozen=True)
class LoadChains:
    """Exactly `chains`, in one transaction; none: no tables."""

    place: Place
    chains: frozenset[Chain]
    instead_of: frozenset[Chain]

    def words(self) -> str:
        inside = f"ip netns exec {self.place} " if self.place != HOME else ""
        return f"{inside}nft -j -f - (tables {TABLE}, {len(self.chains)} chains)"


@dataclass(frozen=True)
class Put:
    """Add an entry, or let it take the place of what has its key."""

    place: Place
    entry: Entry

    def words(self) -> str:
        return f"{_command(self.place, self.entry)} replace {_entry(self.entry)}"


@dataclass(frozen=True)
class Remove:
    place: Place
    entry: Entry

    def words(self) -> str:
        return f"{_command(self.place, self.entry)} delete {_entry(self.entry)}"


Operation = (
    AddNamespace
    | DeleteNamespace
    | AddLink
    | DeleteLink
    | MoveLink
    | ChangeLink
    | SetSysctl
    | LoadChains
    | Put
    | Remove
)


@dataclass(frozen=True)
class OperationRefused:
    """An operation that was not carried out, and why, in the kernel's or the program's words."""

    operation: Operation
    why: str


def device_of(operation: Operation) -> str | None:
    """The device that it is about."""
    if isinstance(operation, AddLink):
        return operation.link.name
    if isinstance(operation, DeleteLink | MoveLink | ChangeLink):
        return operation.name
    if isinstance(operation, Put | Remove):
        return operation.entry.device
    if isinstance(operation, SetSysctl):
        return sysctl_device(operation.sysctl)
    return None


def sysctl_device(sysctl: Sysctl) -> str | None:
    """The device of ipv4/conf/DEVICE/…; None for what is a namespace's."""
    words = sysctl.path.split("/")
    return words[2] if len(words) == 4 and words[2] not in ("all", "default") else None


def _ip(place: Place) -> str:
    return f"ip -n {place}" if place != HOME else "ip"


def _command(place: Place, entry: Entry) -> str:
    if isinstance(entry, FdbEntry):
        return f"bridge -n {place} fdb" if place != HOME else "bridge fdb"
    kind = {Address: "addr", Route: "route", Neighbour: "neigh"}[type(entry)]
    return f"{_ip(place)} {kind}"


def _entry(entry: Entry) -> str:
    if isinstance(entry, Address):
        return f"{entry.address}/{entry.prefix_length} dev {entry.device}"
    if isinstance(entry, Neighbour):
        return f"{entry.address} lladdr {entry.mac} dev {entry.device} nud permanent"
    if isinstance(entry, FdbEntry):
        return f"{entry.mac} dev {entry.device} dst {entry.vtep} self permanent"
    said = [entry.destination] if entry.kind == "unicast" else [entry.kind, entry.destination]
    if entry.gateway is not None:
        said.append(f"via {entry.gateway}")
    if entry.device is not None:
        said.append(f"dev {entry.device}")
    if entry.gateway is not None:
        said.append("onlink")
    if entry.table != MAIN_TABLE:
        said.append(f"table {entry.table}")
    if entry.metric:
        said.append(f"metric {entry.metric}")
    if entry.mtu_bytes is not None:
        said.append(f"mtu {entry.mtu_bytes}")
    return " ".join(said)
