"""What the pages read: copies that follow the API server, and Events, which are asked for when somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import Resource
from provisioner.api.nodes.contract import BOOT_REPORT_ANNOTATION, NODE_FACTS_ANNOTATION
from provisioner.api.nodes.maintenance import FINAL_PHASES, holding_maintenance
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NODES, of
from provisioner.cluster.source import Lookup, Source, conditions_of, phase_of, spec_of
from provisioner.cluster.trim import without_managed_fields

log = structlog.get_logger()

R = TypeVar("R", bound=Resource)
Object = dict[str, Any]
_KEPT_ANNOTATIONS: Final = (BOOT_REPORT_ANNOTATION, NODE_FACTS_ANNOTATION)


def trim_node(node: Object) -> Object:
    """What is shown of a Node, without what its kubelet writes every few minutes though nothing has changed."""
    metadata, status = node["metadata"], node.get("status") or {}
    annotations = metadata.get("annotations") or {}
    kept = {key: metadata[key] for key in ("name", "uid", "resourceVersion") if key in metadata}
    kept["annotations"] = {key: annotations[key] for key in _KEPT_ANNOTATIONS if key in annotations}
    spec = node.get("spec") or {}
    conditions = [
        {key: value for key, value in condition.items() if key != "lastHeartbeatTime"}
        for condition in conditions_of(node)
    ]
    return {
        "metadata": kept,
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if key in spec},
        "status": {"conditions": conditions, "nodeInfo": {"bootID": (status.get("nodeInfo") or {}).get("bootID", "")}},
    }


@dataclass(frozen=True, kw_only=True)
class WebCaches:
    """A copy of each kind. by_server: Maintenances by the server that they are of, those that are over, too."""

    racks: Source
    servers: Source
    pools: Source
    images: Source
    maintenances: Source
    nodes: Source
    by_server: Lookup

    @property
    def are_complete(self) -> bool:
        """Whether each has been complete once."""
        return all(source.has_synced for source in self.all())

    def all(self) -> tuple[Source, ...]:
        return self.racks, self.servers, self.pools, self.images, self.maintenances, self.nodes

    def maintenances_of(self, server: str) -> tuple[Maintenance, ...]:
        """All of that server, by name."""
        found = readable(Maintenance, self.by_server.get(server))
        return tuple(sorted(found, key=lambda each: (len(each.name), each.name)))

    def holding(self, server: str) -> Maintenance | None:
        """The one that holds the server."""
        bodies = [body for body in self.by_server.get(server) if phase_of(body) not in FINAL_PHASES]
        return holding_maintenance(readable(Maintenance, bodies), server) if bodies else None


def readable(kind: type[R], bodies: Iterable[Object]) -> list[R]:
    """Those that can be read: one that cannot, which an older CRD let in, is no reason to show none."""
    found = []
    for body in bodies:
        try:
            found.append(decode_shared(kind, body))
        except (ProvisionerError, ValueError) as error:
            log.warning("object is left out, as it cannot be read", name=body["metadata"]["name"], error=str(error))
    return found


def server_of(maintenance: Mapping[str, Any]) -> tuple[str, ...]:
    """Key of the index, of a Maintenance's JSON."""
    named = spec_of(maintenance).get("serverRef")
    return (named,) if named else ()


def caches_of(*sources: Source) -> WebCaches:
    """In the order of `Caches.all`."""
    racks, servers, pools, images, maintenances, nodes = sources
    return WebCaches(
        racks=racks,
        servers=servers,
        pools=pools,
        images=images,
        maintenances=maintenances,
        nodes=nodes,
        by_server=maintenances.index(server_of),
    )


def follow_cluster(cluster: Cluster) -> tuple[WebCaches, list[Informer]]:
    """The copies, and what has to be started (once everybody has subscribed) for them to follow the API server."""
    informers = [
        Informer(cluster, of(kind), trim=without_managed_fields)
        for kind in (Rack, Server, NodePool, Image, Maintenance)
    ]
    informers.append(Informer(cluster, NODES, trim=trim_node))
    return caches_of(*informers), informers
