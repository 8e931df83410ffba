"""What the executor uses of `provisioner.cluster.client.Cluster`, and of an informer. Tests put their own in place.

Rights that it needs: nodes get, list, watch, patch; nodes/status patch; maintenances get, list, watch, create, patch,
delete; maintenances/status patch; servers, nodepools, images get, list, watch; events create, patch; and what
`provisioner.jobs` needs to see, warn and evict pods and to reach Slurm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from provisioner.api.meta import Resource
from provisioner.cluster.client import ListResult
from provisioner.cluster.resources import ResourceType
from provisioner.cluster.source import Source

Json = dict[str, Any]


class Client(Protocol):
    """Reads are of this moment; each write raises Conflict, NotFound, Refused or Retryable as Cluster's does."""

    def get(self, type: ResourceType, name: str, *, namespace: str | None = None) -> Json: ...  # noqa: A002

    def list(
        self,
        type: ResourceType,  # noqa: A002
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> ListResult:
        """The executor asks for Maintenances by spec.serverRef or status.phase, for Servers by spec.nodePoolRef."""

    def create(self, type: ResourceType, body: Mapping[str, Any], *, namespace: str | None = None) -> Json: ...  # noqa: A002

    def patch(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        manager: str | None = None,
    ) -> Json:
        """JSON merge patch; with metadata.resourceVersion in it, a Conflict if that is stale."""

    def strategic_patch(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        manager: str | None = None,
    ) -> Json:
        """Strategic merge patch: of a Node's conditions, only those that it names by type are changed."""

    def apply_status(
        self,
        kind: type[Resource],
        name: str,
        status: Mapping[str, Any],
        *,
        manager: str,
        resource_version: str | None = None,
    ) -> Json: ...

    def delete(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
    ) -> object: ...


@dataclass(frozen=True, kw_only=True)
class MaintenanceInformers:
    """The caches that the executor follows. They may be stale: nothing that harms is decided on them.

    pods: if given, a pod that comes or ends is noticed at once; else within a minute.
    """

    servers: Source
    pools: Source
    images: Source
    nodes: Source
    maintenances: Source
    pods: Source | None = None

    @property
    def have_synced(self) -> bool:
        sources = (self.servers, self.pools, self.images, self.nodes, self.maintenances)
        return all(source.has_synced for source in sources)
