"""The Node of a server, made before its kubelet registers. Pure.

A kubelet adopts a Node that exists and patches only its default labels, so labels and taints must be on it before.
They are put there once per boot order: a taint that somebody took off afterwards does not come back until the next
boot. So does the taint of the verification, which is there from before the boot until the health controller has seen
the checks of that boot pass. It is not the pool's, and nothing here takes it off.

A kubelet may change every annotation of its own Node. So what we put there is on record in Server.status: nodeUID says
which Node is ours, nodeTaints what may be taken off again; the annotations are written anew where they differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.nodes.contract import PREPARED_ORDER_ANNOTATION, VERIFICATION_TAINT
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.servers.rack import Rack
from provisioner.api.servers.server import Server
from provisioner.cluster.trim import VALUE_LETTERS, picked

MANAGER: Final = "provisioner-join"
"""Field manager of what we put on a Node."""

SERVER_UID_ANNOTATION: Final = "provisioner.dev/server-uid"

POOL_LABEL: Final = "provisioner.dev/pool"
RACK_LABEL: Final = "provisioner.dev/rack"

_OURS: Final = "provisioner.dev/"
_KEPT_STATUS: Final = ("conditions", "nodeInfo", "addresses", "allocatable")
_KUBERNETES_ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}

Taints = list[dict[str, Any]]


@dataclass(frozen=True)
class NodeNameTaken:
    """A Node of that name exists that was not made for this server; it is left alone."""

    message: str


@dataclass(frozen=True)
class CreateNode:
    """There is no Node: create this one, prepared. Admission may add taints to it, which stay."""

    body: Mapping[str, Any]
    node_taints: tuple[str, ...]
    """Key and effect of the pool's taints, as Server.status.nodeTaints has them once this is done."""


@dataclass(frozen=True)
class PrepareNode:
    """Merge these into the Node: `labels` (None: take it off), `taints`, `annotations`; they mark the order."""

    labels: Mapping[str, str | None]
    taints: Taints
    annotations: Mapping[str, str]
    node_taints: tuple[str, ...]


@dataclass(frozen=True)
class RecordNode:
    """The Node is prepared, and the record does not say so: whoever did it died before, or its pool was gone since."""

    node_taints: tuple[str, ...]


def plan_node(
    server: Server, pool: NodePool, rack: Rack | None, existing: Mapping[str, Any] | None
) -> CreateNode | PrepareNode | RecordNode | NodeNameTaken | None:
    """What to do about the Node of `server` for its current boot order; None if it is prepared already."""
    order = server.status.order
    if order is None or server.metadata.uid is None:
        return None
    wanted: Taints = [to_json(taint) for taint in pool.spec.kubelet.taints]
    node_taints = tuple(sorted({f"{taint['key']}:{taint['effect']}" for taint in wanted}))
    marks = {SERVER_UID_ANNOTATION: server.metadata.uid, PREPARED_ORDER_ANNOTATION: order.id}
    labels = node_labels(server, pool, rack)
    if existing is None:
        metadata = {"name": server.name, "annotations": marks, "labels": labels}
        spec = {"taints": with_verification(wanted)}
        return CreateNode({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}, node_taints)
    annotations: Mapping[str, str] = existing["metadata"].get("annotations") or {}
    recorded = existing["metadata"].get("uid") is not None and existing["metadata"]["uid"] == server.status.node_uid
    marked = annotations.get(SERVER_UID_ANNOTATION) == server.metadata.uid
    if not marked and not recorded:
        return NodeNameTaken(
            f"Node {server.name} exists and was not made for this server (annotation {SERVER_UID_ANNOTATION} is "
            f"{annotations.get(SERVER_UID_ANNOTATION) or 'absent'}, the server's uid is {server.metadata.uid}); "
            f"delete the Node or register the server under another name"
        )
    prepared = annotations.get(PREPARED_ORDER_ANNOTATION) == order.id
    if prepared and marked:
        said = find_condition(server.status.conditions, "NodePrepared")
        if recorded:
            return None if said is not None and said.status == "True" else RecordNode(server.status.node_taints)
        return RecordNode(node_taints) if existing["metadata"].get("uid") is not None else None
    present: Taints = (existing.get("spec") or {}).get("taints") or []
    return PrepareNode(
        labels=dict.fromkeys(labels_set_before(existing) - labels.keys()) | labels,
        taints=present
        if prepared
        else with_verification(merge_taints(present, wanted, taints_set_before(server) if recorded else set())),
        annotations=marks,
        node_taints=node_taints,
    )


def node_labels(server: Server, pool: NodePool, rack: Rack | None) -> dict[str, str]:
    """Labels of the server's Node; where the pool contradicts what the server is, the server wins."""
    labels = dict(pool.spec.kubelet.labels)
    if rack is not None and rack.spec.failure_domain:
        labels["topology.kubernetes.io/zone"] = rack.spec.failure_domain
    if server.spec.rack_ref:
        labels[RACK_LABEL] = server.spec.rack_ref
    return labels | {
        # The three that a kubelet would set (and will, when it registers).
        "kubernetes.io/hostname": server.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _KUBERNETES_ARCHITECTURES[server.spec.architecture],
        POOL_LABEL: pool.name,
    }


def merge_taints(present: Iterable[Mapping[str, Any]], wanted: Taints, before: set[tuple[str, str]]) -> Taints:
    """`present` without what we set `before`, and with `wanted`; foreign taints stay as they are, in their order.

    A taint is known by key and effect, as Kubernetes does.
    """
    ours = before | {(taint["key"], taint["effect"]) for taint in wanted}
    foreign = [dict(taint) for taint in present if (taint["key"], taint["effect"]) not in ours]
    return foreign + wanted


def with_verification(taints: Taints) -> Taints:
    """`taints`, the one of the verification among them; one that is there stays as it is."""
    verification = {"key": VERIFICATION_TAINT, "effect": "NoExecute"}
    if any((taint["key"], taint["effect"]) == (VERIFICATION_TAINT, "NoExecute") for taint in taints):
        return taints
    return [*taints, verification]


def taints_set_before(server: Server) -> set[tuple[str, str]]:
    """Key and effect of the taints that we put on the server's Node."""
    pairs = (text.rpartition(":") for text in server.status.node_taints)
    return {(key, effect) for key, _, effect in pairs}


def labels_set_before(node: Mapping[str, Any]) -> set[str]:
    """Labels that we put on a Node and nobody else, by what the API server says of its fields."""
    ours, theirs = set[str](), set[str]()
    for entry in node["metadata"].get("managedFields") or ():
        (ours if entry.get("manager") == MANAGER else theirs).update(_owned_labels(entry))
    return {key.removeprefix("f:") for key in ours - theirs if key != "."}


def trim_node(node: dict[str, Any]) -> dict[str, Any]:
    """`node` without what its kubelet lists for the scheduler and who owns which field, but for the labels: most of a
    Node in use, and read by none of the controllers that share a cache of them. Of annotations that are not ours it
    has the beginning. How much a machine may write into the rest is for a policy to say (node_limits.yaml)."""
    node["status"] = picked(node.get("status"), _KEPT_STATUS)
    metadata = node["metadata"]
    owners = [(entry, _owned_labels(entry)) for entry in metadata.pop("managedFields", None) or ()]
    metadata["managedFields"] = [
        {**entry, "fieldsV1": {"f:metadata": {"f:labels": labels}}} for entry, labels in owners if labels
    ]
    for key, value in (metadata.get("annotations") or {}).items():
        if not key.startswith(_OURS):
            metadata["annotations"][key] = value[:VALUE_LETTERS]
    return node


def _owned_labels(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of an entry of managedFields."""
    labels = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
    return {key: {} for key in labels}
