"""The caches that the boot controller follows, and which servers a change in one of them concerns."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api import Server
from provisioner.api.machinery.values import normal_system_uuid
from provisioner.cluster.source import Caches, Lookup, Source, phase_of, spec_of, when_changed
from provisioner.rules.assigned_image import boots_of_pool, images_of_pool
from provisioner.rules.bootability import availability_of
from provisioner.rules.dpus import hosts_that_wait_otherwise
from provisioner.rules.liveness import read_life
from provisioner.rules.pool_of_server import refers_to


@dataclass(frozen=True, kw_only=True)
class BootInformers(Caches):
    """The caches that the boot controller follows. `leases`: those of the namespace kube-node-lease."""

    servers: Source
    pools: Source
    images: Source
    racks: Source
    nodes: Source
    leases: Source
    maintenances: Source


def follow(informers: BootInformers, add: Callable[[str], None]) -> None:
    """Queue the servers that a change concerns. Leases are read when needed; each renewal would be a change."""

    servers_by = informers.servers.index(refers_to)
    pools_by_image = informers.pools.index(images_of_pool)
    maintenances_by_image = informers.maintenances.index(lambda each: [_reboot(each).get("imageRef")])

    def add_all(kind: str, name: str) -> None:
        for server in servers_by.get((kind, name)):
            add(server["metadata"]["name"])

    def image_changed(name: str) -> None:
        add_all("Image", name)
        for pool in pools_by_image.get(name):
            add_all("NodePool", pool["metadata"]["name"])
        for maintenance in maintenances_by_image.get(name):
            add(server_of(maintenance))

    def maintenance_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if phase_of(old) != phase_of(new) or _reboot(old) != _reboot(new):
            for body in (old, new):
                if body is not None:
                    add(server_of(body))

    def server_changed(name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if new is not None:
            add(name)
        for host in hosts_that_wait_otherwise(old, new):
            add(host)

    informers.servers.subscribe(server_changed)
    informers.nodes.subscribe(when_changed(lambda node: read_life(node, None), add))
    informers.pools.subscribe(when_changed(boots_of_pool, lambda name: add_all("NodePool", name)))
    informers.racks.subscribe(when_changed(spec_of, lambda name: add_all("Rack", name)))
    informers.images.subscribe(when_changed(availability_of, image_changed))
    informers.maintenances.subscribe(maintenance_changed)


def server_of(maintenance: Mapping[str, Any]) -> str:
    """spec.serverRef of a Maintenance's JSON."""
    return str(spec_of(maintenance).get("serverRef"))


def _reboot(maintenance: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return ((maintenance or {}).get("status") or {}).get("reboot") or {}


def find_other_node(server: Server, nodes: Lookup, is_alive: Callable[[Mapping[str, Any]], bool]) -> str | None:
    """The name of a living Node that has the server's system UUID or its address, but not its name.

    `nodes` are indexed by `machine_keys`.
    """
    keys: list[Hashable] = []
    keys += [("uuid", normal_system_uuid(server.spec.system_uuid))] if server.spec.system_uuid else []
    keys += [("address", server.status.address)] if server.status.address is not None else []
    found = {node["metadata"]["name"]: node for key in keys for node in nodes.get(key)}
    return next((name for name, node in sorted(found.items()) if name != server.name and is_alive(node)), None)


def machine_keys(node: Mapping[str, Any]) -> Iterable[Hashable]:
    """What tells a Node's machine: its system UUID, its internal addresses."""
    status = node.get("status") or {}
    yield "uuid", normal_system_uuid(str((status.get("nodeInfo") or {}).get("systemUUID") or ""))
    yield from (("address", a.get("address")) for a in status.get("addresses") or () if a.get("type") == "InternalIP")
