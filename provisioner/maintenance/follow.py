"""The caches that the executor follows, and which servers a change in one of them concerns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.nodes.maintenance import DISTURBING_PHASES, FINAL_PHASES
from provisioner.cluster.source import Caches, Source, conditions_of, is_true_in, phase_of, spec_of, when_changed
from provisioner.maintenance.model.budget import age_of, part_of
from provisioner.rules.assigned_image import boots_of_pool
from provisioner.rules.bootability import availability_of
from provisioner.rules.dpus import host_of, hosts
from provisioner.rules.pool_of_server import current_pool_in

Json = Mapping[str, Any]

ALL: Final = ""
"""Key of all Maintenances that have not ended; no server has that name."""
WOKEN: Final = 16


@dataclass(frozen=True, kw_only=True)
class MaintenanceInformers(Caches):
    """The caches that the executor follows. They may be stale: nothing that harms is decided on them.

    pods: if given, a pod that comes or ends is noticed at once, and nothing is done before all are known; else it is
    noticed within a minute.
    """

    servers: Source
    pools: Source
    images: Source
    nodes: Source
    maintenances: Source
    pods: Source | None = None


def follow(informers: MaintenanceInformers, add: Callable[[str], None]) -> None:
    """Queue, by `add`, the servers that have something to do after a change."""

    unfinished = informers.maintenances.index(
        lambda each: () if phase_of(each) in FINAL_PHASES else (_server(each), ALL)
    )
    waiting = informers.maintenances.index(lambda each: (part_of(each),))
    dpus = informers.servers.index(hosts)

    def add_waiting(matches: Callable[[str], bool]) -> None:
        """The servers, of those that match, that have a Maintenance which has not ended."""
        for maintenance in unfinished.get(ALL):
            if matches(_server(maintenance)):
                add(_server(maintenance))

    def add_next(pool: str | None) -> None:
        """A slot of the pool's budget is free: wake those whose turn it is. The others look for themselves in time."""
        members = (m for m in waiting.get("Waits") if pool_of(_server(m)) == pool)
        for maintenance in heapq.nsmallest(WOKEN, members, key=age_of):
            add(_server(maintenance))

    def pool_of(server: str) -> str | None:
        return current_pool_in(informers.servers.get(server))

    def maintenance_changed(name: str, old: Json | None, new: Json | None) -> None:
        known = new or old
        if known is None:
            return
        server = _server(known)
        add(server)
        for dpu in dpus.get(server):
            add(dpu["metadata"]["name"])
        host = host_of(informers.servers.get(server))
        if host is not None:
            add(host)
        if phase_of(old) in DISTURBING_PHASES and phase_of(new) not in DISTURBING_PHASES:
            add_next(pool_of(server))

    def pod_changed(name: str, old: Json | None, new: Json | None) -> None:
        before, after = spec_of(old).get("nodeName"), spec_of(new).get("nodeName")
        has_ended = new is None or phase_of(new) in ("Succeeded", "Failed")
        has_come = old is not None and not before and after  # and is to be warned, if a deadline is near
        server = str(after or before)
        if ((before and has_ended) or has_come) and unfinished.get(server):
            add(server)

    informers.maintenances.subscribe(maintenance_changed)

    def card_changed(name: str, old: Json | None, new: Json | None) -> None:
        if _of_card(old) != _of_card(new):
            for host in {host_of(old), host_of(new)} - {None}:
                add(str(host))

    informers.servers.subscribe(when_changed(_of_server, add))
    informers.servers.subscribe(card_changed)
    informers.nodes.subscribe(when_changed(_of_node, add))
    informers.pools.subscribe(
        when_changed(boots_of_pool, lambda pool: add_waiting(lambda server: pool_of(server) == pool))
    )
    informers.images.subscribe(when_changed(availability_of, lambda image: add_waiting(lambda server: True)))
    if informers.pods is not None:
        informers.pods.subscribe(pod_changed)


def _server(maintenance: Json) -> str:
    return str(spec_of(maintenance).get("serverRef") or "")


def _of_server(server: Json | None) -> Any:
    """What of a Server matters here: not the progress reports, of which there are many."""
    status = (server or {}).get("status") or {}
    return (
        server is None,
        (server or {}).get("metadata", {}).get("generation"),
        *(status.get(key) for key in ("order", "join", "imageDigest", "assignedImageRef", "verification")),
        *(status.get(key) for key in ("nodePoolRef", "assignedNodePoolRef")),
        conditions_of(server, "Verified", "NodePrepared"),
    )


def _of_card(server: Json | None) -> Any:
    """What of a DPU matters to the server in which it sits."""
    return host_of(server), is_true_in(server, "Ready")


def _of_node(node: Json | None) -> Any:
    """What of a Node matters here: not the heartbeats of its kubelet."""
    body = node or {}
    metadata, status = body.get("metadata") or {}, body.get("status") or {}
    annotations = metadata.get("annotations") or {}
    return (
        node is None,
        metadata.get("uid"),
        {k: v for k, v in annotations.items() if k.startswith("provisioner.dev/")},
        (body.get("spec") or {}).get("taints"),
        (status.get("nodeInfo") or {}).get("bootID"),
        [
            (c.get("type"), c.get("status"), c.get("reason"), c.get("message") if "/" in str(c.get("type")) else None)
            for c in conditions_of(node)
        ],
    )
