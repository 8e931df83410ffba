"""Rewrites every object of a kind in the version that its CustomResourceDefinition stores now.

A version can go only when etcd holds no object in it. The API server writes an object in the storage version of the
moment, and keeps in `status.storedVersions` of the CRD each version that any object may still be stored in. So each
object is written once, unchanged, and then the list is set to the one version.

Kubernetes' own StorageVersionMigration is off by default in the releases that this project supports, and where it is on
it leaves `storedVersions` of a CRD alone.

Which objects are done shows in their resourceVersion: what was written after the storage version had changed is stored
in it, whoever wrote it. That moment is an annotation of the CRD, so that who goes on after an interruption, on whatever
machine, rewrites the rest alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from provisioner.api.machinery.errors import Conflict, NeedsHuman, NotFound, Refused, Retryable
from provisioner.cluster.client import Cluster, Object
from provisioner.cluster.resources import CRDS, ResourceType

MANAGER: Final = "provisioner-migrate"
BEGUN: Final = "provisioner.dev/storage-migration"
"""Annotation of a CRD whose objects are being rewritten."""
ATTEMPTS: Final = 6
"""To write one object, to an API server that does not answer."""
MOST_NAMED: Final = 10
"""Refused objects of which an error tells."""


@dataclass(frozen=True)
class Begun:
    """That objects are rewritten as `version`. Those with a resourceVersion above `since` need not be.

    `generation`: of the CRD then. Another one means that its versions may have changed, and all is begun anew.
    """

    version: str
    since: int
    generation: int

    def to_text(self) -> str:
        return json.dumps({"version": self.version, "since": str(self.since), "generation": self.generation})


@dataclass
class MigrationProgress:
    """How far the migration of one kind is; of those that were `written` or `gone` none needs another write."""

    crd: str
    version: str
    total: int = 0
    written: int = 0
    others_wrote: int = 0
    gone: int = 0
    refused: list[str] = field(default_factory=list)


def storage_version(crd: Object) -> str:
    """The version in which the API server writes objects of this kind."""
    return next(str(version["name"]) for version in crd["spec"]["versions"] if version["storage"])


def stored_versions(crd: Object) -> list[str]:
    """Versions in which etcd may hold objects of this kind."""
    return list((crd.get("status") or {}).get("storedVersions") or ())


def needs_migration(crd: Object) -> bool:
    """Whether etcd may hold objects in a version that is not written any more."""
    return stored_versions(crd) != [storage_version(crd)]


def read_begun(crd: Object) -> Begun | None:
    """The migration that was begun for the versions that the CRD has now; None if there is none, or none readable."""
    text = (crd["metadata"].get("annotations") or {}).get(BEGUN)
    try:
        said = json.loads(text) if text else {}
        begun = Begun(str(said["version"]), int(said["since"]), int(said["generation"]))
    except (ValueError, KeyError, TypeError):
        return None
    stands = (begun.version, begun.generation) == (storage_version(crd), crd["metadata"]["generation"])
    return begun if stands else None


def migrate(
    cluster: Cluster,
    name: str,
    *,
    settle_seconds: float,
    pause_seconds: float,
    sleep: Callable[[float], None],
    report: Callable[[MigrationProgress], None] = lambda progress: None,
) -> MigrationProgress:
    """Rewrite all objects of the CRD `name`, then say in its status that no older version is stored.

    `settle_seconds`: how long API servers may take to see that the storage version changed; waited once, before the
    first object. `pause_seconds`: between two writes. Interrupted at any moment, it goes on where it was when it is
    called again.

    Raises: NotFound without the CRD; NeedsHuman if objects were refused, or the CRD changed meanwhile: then its status
    is as it was.
    """
    crd = cluster.get(CRDS, name)
    progress = MigrationProgress(name, storage_version(crd))
    if not needs_migration(crd):
        return progress
    type_ = _type_of(crd)
    begun = read_begun(crd) or _begin(cluster, crd, type_, settle_seconds, sleep)
    listed = cluster.list(type_, trim=_name_of).items
    waiting = [named for named in listed if int(named["resourceVersion"]) <= begun.since]
    progress.total = len(waiting)
    for named in waiting:
        _rewrite(cluster, type_, named, progress, sleep)
        report(progress)
        sleep(pause_seconds)
    if progress.refused:
        shown = "; ".join(progress.refused[:MOST_NAMED])
        raise NeedsHuman(
            f"{len(progress.refused)} of {progress.total} objects of {name} were not written as {begun.version}: "
            f"{shown}",
            hint="correct or delete them, and run it again: what is written is not written once more",
        )
    _finish(cluster, name, begun)
    return progress


def _begin(
    cluster: Cluster, crd: Object, type_: ResourceType, settle_seconds: float, sleep: Callable[[float], None]
) -> Begun:
    sleep(settle_seconds)
    # Any write counts up: the moment is that of the collection as it is after every API server stores the new version.
    now = cluster.list(type_, trim=lambda item: None).resource_version
    begun = Begun(storage_version(crd), int(now), crd["metadata"]["generation"])
    # Held to the CRD as it was read: another storage version in between is a Conflict.
    metadata = {"resourceVersion": crd["metadata"]["resourceVersion"], "annotations": {BEGUN: begun.to_text()}}
    cluster.patch(CRDS, crd["metadata"]["name"], {"metadata": metadata}, manager=MANAGER)
    return begun


def _rewrite(
    cluster: Cluster, type_: ResourceType, named: Object, progress: MigrationProgress, sleep: Callable[[float], None]
) -> None:
    """Write one object as it is: the API server stores it in the storage version, and does nothing where it is so."""
    where = named["name"] if named["namespace"] is None else f"{named['namespace']}/{named['name']}"
    patch = {"metadata": {"uid": named["uid"], "resourceVersion": named["resourceVersion"]}}
    for attempt in range(ATTEMPTS):
        try:
            cluster.patch(type_, named["name"], patch, namespace=named["namespace"], manager=MANAGER)
        except NotFound:
            progress.gone += 1
        except Conflict:
            # Somebody wrote it since it was listed, or made another one of that name: in the new version.
            progress.others_wrote += 1
        except Refused as error:
            progress.refused.append(f"{where}: {Exception.__str__(error)}")
        except Retryable as error:
            if attempt == ATTEMPTS - 1:
                raise
            sleep(error.after_seconds)
            continue
        else:
            progress.written += 1
        return


def _finish(cluster: Cluster, name: str, begun: Begun) -> None:
    crd = cluster.get(CRDS, name)
    if read_begun(crd) != begun:
        raise NeedsHuman(
            f"CRD {name} was changed while its objects were written as {begun.version}: it stores "
            f"{storage_version(crd)} at generation {crd['metadata']['generation']}",
            hint="run it again",
        )
    seen = {"resourceVersion": crd["metadata"]["resourceVersion"]}
    done = cluster.patch(
        CRDS,
        name,
        {"metadata": seen, "status": {"storedVersions": [begun.version]}},
        subresource="status",
        manager=MANAGER,
    )
    seen = {"resourceVersion": done["metadata"]["resourceVersion"]}
    cluster.patch(CRDS, name, {"metadata": {**seen, "annotations": {BEGUN: None}}}, manager=MANAGER)


def _type_of(crd: Object) -> ResourceType:
    spec = crd["spec"]
    namespaced = spec["scope"] == "Namespaced"
    return ResourceType(spec["group"], storage_version(crd), spec["names"]["kind"], spec["names"]["plural"], namespaced)


def _name_of(item: Object) -> dict[str, Any]:
    metadata = item["metadata"]
    kept = {key: metadata[key] for key in ("name", "uid", "resourceVersion")}
    return {**kept, "namespace": metadata.get("namespace")}
