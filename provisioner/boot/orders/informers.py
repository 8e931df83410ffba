"""The caches that the boot controller follows, and which servers a change in one of them concerns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.boot.orders.facts import read_node
from provisioner.boot.orders.maintenance_index import server_of
from provisioner.cluster.source import Source


@dataclass(frozen=True, kw_only=True)
class BootInformers:
    """The caches that the boot controller follows. `leases`: those of the namespace kube-node-lease."""

    servers: Source
    pools: Source
    images: Source
    racks: Source
    nodes: Source
    leases: Source
    maintenances: Source

    @property
    def have_synced(self) -> bool:
        sources = (
            self.servers, self.pools, self.images, self.racks, self.nodes, self.leases, self.maintenances
        )  # fmt: skip
        return all(source.has_synced for source in sources)


def follow(informers: BootInformers, add: Callable[[str], None]) -> None:
    """Queue the servers that a change concerns. Leases are read when needed; each renewal would be a change."""

    def add_all(matches: Callable[[Mapping[str, Any]], bool]) -> None:
        for server in informers.servers.items():
            if matches(server):
                add(server["metadata"]["name"])

    def server_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if new is not None:
            add(name)

    def node_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if read_node(old, None) != read_node(new, None):
            add(name)

    def pool_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if _spec(old) != _spec(new):
            add_all(lambda server: _spec(server).get("nodePoolRef") == name)

    def rack_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if _spec(old) != _spec(new):
            add_all(lambda server: _spec(server).get("rackRef") == name)

    def image_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if _available(old) == _available(new) and (old is None) == (new is None):
            return
        pools = {p["metadata"]["name"] for p in informers.pools.items() if _spec(p).get("imageRef") == name}
        asked = {server_of(m) for m in informers.maintenances.items() if _reboot(m).get("imageRef") == name}
        add_all(
            lambda server: (
                _spec(server).get("nodePoolRef") in pools
                or server["metadata"]["name"] in asked
                or ((server.get("status") or {}).get("order") or {}).get("imageRef") == name
            )
        )

    def maintenance_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if _phase(old) != _phase(new) or _reboot(old) != _reboot(new):
            for body in (old, new):
                if body is not None:
                    add(server_of(body))

    informers.servers.subscribe(server_changed)
    informers.nodes.subscribe(node_changed)
    informers.pools.subscribe(pool_changed)
    informers.racks.subscribe(rack_changed)
    informers.images.subscribe(image_changed)
    informers.maintenances.subscribe(maintenance_changed)


def _spec(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return (body or {}).get("spec") or {}


def _phase(maintenance: Mapping[str, Any] | None) -> str | None:
    return ((maintenance or {}).get("status") or {}).get("phase")


def _reboot(maintenance: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return ((maintenance or {}).get("status") or {}).get("reboot") or {}


def _available(image: Mapping[str, Any] | None) -> tuple[Any, ...]:
    conditions = ((image or {}).get("status") or {}).get("conditions") or ()
    return tuple((c.get("status"), c.get("message")) for c in conditions if c.get("type") == "Available")
