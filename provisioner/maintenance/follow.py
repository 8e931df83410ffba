"""Which servers a change in a cache concerns."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Any, Final

from provisioner.api.maintenance import DISTURBING_PHASES, FINAL_PHASES
from provisioner.maintenance.client import MaintenanceInformers
from provisioner.maintenance.phases.budget import age_of, part_of

Json = Mapping[str, Any]

ALL: Final = ""
"""Key of all Maintenances that have not ended; no server has that name."""
WOKEN: Final = 16


def follow(informers: MaintenanceInformers, add: Callable[[str], None]) -> None:
    """Queue, by `add`, the servers that have something to do after a change."""

    unfinished = informers.maintenances.index(lambda each: () if _phase(each) in FINAL_PHASES else (_server(each), ALL))
    waiting = informers.maintenances.index(lambda each: (part_of(each),))

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
        found = informers.servers.get(server)
        return _spec(found).get("nodePoolRef")

    def maintenance_changed(name: str, old: Json | None, new: Json | None) -> None:
        known = new or old
        if known is None:
            return
        server = _server(known)
        add(server)
        if _phase(old) in DISTURBING_PHASES and _phase(new) not in DISTURBING_PHASES:
            add_next(pool_of(server))

    def server_changed(name: str, old: Json | None, new: Json | None) -> None:
        if _of_server(old) != _of_server(new):
            add(name)

    def node_changed(name: str, old: Json | None, new: Json | None) -> None:
        if _of_node(old) != _of_node(new):
            add(name)

    def pool_changed(name: str, old: Json | None, new: Json | None) -> None:
        if _spec(old) != _spec(new):
            add_waiting(lambda server: pool_of(server) == name)

    def image_changed(name: str, old: Json | None, new: Json | None) -> None:
        if _available(old) != _available(new):
            add_waiting(lambda server: True)

    def pod_changed(name: str, old: Json | None, new: Json | None) -> None:
        before, after = _spec(old).get("nodeName"), _spec(new).get("nodeName")
        has_ended = new is None or _phase(new) in ("Succeeded", "Failed")
        has_come = old is not None and not before and after  # and is to be warned, if a deadline is near
        server = str(after or before)
        if ((before and has_ended) or has_come) and unfinished.get(server):
            add(server)

    informers.maintenances.subscribe(maintenance_changed)
    informers.servers.subscribe(server_changed)
    informers.nodes.subscribe(node_changed)
    informers.pools.subscribe(pool_changed)
    informers.images.subscribe(image_changed)
    if informers.pods is not None:
        informers.pods.subscribe(pod_changed)


def _spec(body: Json | None) -> Json:
    return (body or {}).get("spec") or {}


def _server(maintenance: Json) -> str:
    return str(_spec(maintenance).get("serverRef") or "")


def _phase(body: Json | None) -> str | None:
    return ((body or {}).get("status") or {}).get("phase")


def _of_server(server: Json | None) -> Any:
    """What of a Server matters here: not the progress reports, of which there are many."""
    status = (server or {}).get("status") or {}
    return (
        server is None,
        (server or {}).get("metadata", {}).get("generation"),
        *(status.get(key) for key in ("order", "join", "imageDigest", "assignedImageRef", "verification")),
        [c for c in status.get("conditions") or () if c.get("type") in ("Verified", "NodePrepared")],
    )


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
            for c in status.get("conditions") or ()
        ],
    )


def _available(image: Json | None) -> Any:
    conditions = ((image or {}).get("status") or {}).get("conditions") or ()
    return image is None, [(c.get("status"), c.get("message")) for c in conditions if c.get("type") == "Available"]
