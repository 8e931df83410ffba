"""The caches that the rollout follows, and which servers of which pool a change concerns."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.nodes.contract import BOOT_REPORT_ANNOTATION
from provisioner.cluster.source import (
    Caches,
    Lookup,
    Source,
    conditions_of,
    phase_of,
    spec_of,
    when_changed,
)
from provisioner.rules.bootability import availability_of
from provisioner.rules.nodes import read_node

Json = Mapping[str, Any]

SETTLE_SECONDS: Final = 0.3
"""What changes within so short a time is decided on together."""


@dataclass(frozen=True, kw_only=True)
class RolloutInformers(Caches):
    """The caches. pods: those that are not over."""

    servers: Source
    pools: Source
    images: Source
    nodes: Source
    maintenances: Source
    pods: Source


class Changed:
    """By pool, the servers that changed since they were looked at last. Usable from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, pool: str, server: str) -> None:
        with self._lock:
            self._names[pool].add(server)

    def take(self, pool: str) -> set[str]:
        """Those of `pool`, which are no longer noted from here on."""
        with self._lock:
            return self._names.pop(pool, set())


def follow(informers: RolloutInformers, by_pool: Lookup, changed: Changed, queue: Callable[[str, float], None]) -> None:
    """Note the servers that a change concerns, and queue their pools, by `queue`, after so many seconds."""

    borrowers = informers.pools.index(_lenders)

    def concerns(server: str, *bodies: Json | None) -> None:
        known = bodies or (informers.servers.get(server),)
        homes = {str(spec_of(body)["nodePoolRef"]) for body in known if spec_of(body).get("nodePoolRef")}
        for pool in homes | {each["metadata"]["name"] for home in homes for each in borrowers.get(home)}:
            changed.add(pool, server)
            queue(pool, SETTLE_SECONDS)

    def server_changed(name: str, old: Json | None, new: Json | None) -> None:
        if _of_server(old) != _of_server(new):
            concerns(name, old, new)

    def maintenance_changed(name: str, old: Json | None, new: Json | None) -> None:
        if _of_maintenance(old) != _of_maintenance(new):
            concerns(str(spec_of(new or old).get("serverRef") or ""))

    def pod_changed(name: str, old: Json | None, new: Json | None) -> None:
        for server in {spec_of(old).get("nodeName"), spec_of(new).get("nodeName")} - {None, ""}:
            concerns(str(server))

    def pool_changed(name: str) -> None:
        for body in by_pool.get(name):
            changed.add(name, body["metadata"]["name"])
        queue(name, 0.0)

    def borrowings_changed(name: str, old: Json | None, new: Json | None) -> None:
        """Who lends, or borrows from the same pools, may have other servers from now on."""
        if spec_of(old).get("borrows") != spec_of(new).get("borrows"):
            for home in {*_lenders(old), *_lenders(new)}:
                for pool in {home, *(each["metadata"]["name"] for each in borrowers.get(home))}:
                    queue(pool, 0.0)

    def image_changed(name: str) -> None:
        for pool in informers.pools.items():
            if spec_of(pool).get("imageRef") == name:
                pool_changed(pool["metadata"]["name"])

    informers.servers.subscribe(server_changed)
    informers.nodes.subscribe(when_changed(_of_node, concerns))
    informers.maintenances.subscribe(maintenance_changed)
    informers.pods.subscribe(pod_changed)
    informers.pools.subscribe(when_changed(_of_pool, pool_changed))
    informers.pools.subscribe(borrowings_changed)
    informers.images.subscribe(when_changed(availability_of, image_changed))


def _lenders(pool: Json | None) -> list[str]:
    return [str(each.get("nodePoolRef")) for each in spec_of(pool).get("borrows") or ()]


def _of_server(server: Json | None) -> Any:
    """What of a Server matters here: not the progress of its boots."""
    status, spec = (server or {}).get("status") or {}, spec_of(server)
    return (
        server is None,
        *(spec.get(key) for key in ("nodePoolRef", "rackRef", "acceptance", "powerState", "upgrades")),
        (server or {}).get("metadata", {}).get("labels"),
        *(status.get(key) for key in ("imageRef", "imageDigest", "assignedImageRef", "upgradeFailure")),
        *(status.get(key) for key in ("nodePoolRef", "assignedNodePoolRef")),
        (status.get("power") or {}).get("state"),
        (status.get("verification") or {}).get("bootID"),
        [(c.get("type"), c.get("status")) for c in conditions_of(server, "Ready", "Verified")],
    )


def _of_node(node: Json | None) -> Any:
    view = read_node(node)
    if view is None:
        return None
    allocatable = (view.body.get("status") or {}).get("allocatable")
    return view.boot_id, view.annotations.get(BOOT_REPORT_ANNOTATION), view.held, allocatable


def _of_maintenance(maintenance: Json | None) -> Any:
    status = (maintenance or {}).get("status") or {}
    return (
        maintenance is None,
        spec_of(maintenance).get("requestors"),
        phase_of(maintenance),
        (status.get("reboot") or {}).get("id"),
        [c.get("status") for c in conditions_of(maintenance, "Succeeded")],
    )


def _of_pool(pool: Json | None) -> Any:
    """What is wanted of it; and whether its status is there at all, which this rollout writes."""
    return pool is None, spec_of(pool), not conditions_of(pool)
