"""What the cluster says of images: which there are, and who names which. Past every cache, each list once, in pages.

The order matters. What names an Image is handed on in one direction: a person writes it into a NodePool or a
Maintenance, the rollout assigns it to a Server, the boot order repeats it, the Node runs it. Read in that order, a name
that is handed on meanwhile is seen at one of its two places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.meta import Resource, read_time
from provisioner.api.machinery.values import parse_digest
from provisioner.cluster.client import ListResult
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.image.retention.decide import PublishedImage
from provisioner.image.retention.references import KEEP_LABEL, images_named, images_of_node

NAMED_BY_PEOPLE: Final[tuple[type[Resource], ...]] = (NodePool, Maintenance)
"""Where a name is first written."""

Object = Mapping[str, Any]
Uses = dict[str, dict[str, set[str]]]


class Lists(Protocol):
    """What this needs of `provisioner.cluster.client.Cluster`."""

    def list(self, type: ResourceType, *, trim: Callable[[dict[str, Any]], dict[str, Any] | None]) -> ListResult: ...  # noqa: A002


@dataclass(frozen=True)
class ImageUses:
    """images: all Image objects. uses: by name or digest of an Image, by kind and field, who names it."""

    images: tuple[PublishedImage, ...]
    uses: Uses


def read_fleet(cluster: Lists) -> ImageUses:
    """Raises: the errors of the cluster; then nothing is known, and nothing may be deleted."""
    images = tuple(published(item) for item in cluster.list(of(Image), trim=lambda item: item).items)
    uses = read_uses(cluster, *NAMED_BY_PEOPLE, Server)
    _collect(cluster, NODES, "Node", images_of_node, uses)
    return ImageUses(images, uses)


def read_uses(cluster: Lists, *kinds: type[Resource]) -> Uses:
    """Who of these kinds names which Image. Raises: the errors of the cluster."""
    uses: Uses = defaultdict(lambda: defaultdict(set))
    for kind in kinds:
        name = kind.KIND.kind
        _collect(cluster, of(kind), name, lambda body, name=name: images_named(name, body), uses)  # type: ignore[misc]
    return uses


def published(body: Object) -> PublishedImage:
    """An Image object as retention sees it. Raises: Refused if its digest is none."""
    metadata, spec = body["metadata"], body["spec"]
    label = (metadata.get("labels") or {}).get(KEEP_LABEL)
    return PublishedImage(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        digest=parse_digest(spec["digest"]),
        line=(spec["recipe"], spec["distribution"], spec["architecture"]),
        created=read_time(metadata.get("creationTimestamp")),
        is_kept=label is not None and label != "false",
    )


def _collect(
    cluster: Lists, type_: ResourceType, kind: str, named: Callable[[Object], Iterator[tuple[str, str]]], uses: Uses
) -> None:
    def take(body: dict[str, Any]) -> None:
        """Keeps names alone: a fleet's objects need not be in memory at once."""
        for image, field in named(body):
            uses[image][f"{kind} {field}"].add(body["metadata"]["name"])

    cluster.list(type_, trim=take)
