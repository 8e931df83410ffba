"""What FakeCluster keeps, and the rules by which an object changes there."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from provisioner.api.machinery.errors import Conflict, NotFound, Refused
from provisioner.api.machinery.meta import rfc3339
from provisioner.cluster.resources import NAMESPACES, ResourceType
from tests.cluster.fake_apply import FakeOwnership, copy_json
from tests.cluster.fake_schema import admit, is_own_kind, schema_of

Object = dict[str, Any]

WITH_STATUS: Final = ("Node", "Pod", "PodDisruptionBudget", "Job", "Namespace")
"""Built-in kinds whose status is written through the subresource only."""
GENERATIONS: Final = ("Pod", "PodDisruptionBudget", "Job")
"""Built-in kinds that have a generation."""
NOT_READY_TAINT: Final = {"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}
_IDENTITY: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "generation")


@dataclass(frozen=True)
class FakeChange:
    """One change, as a watch would tell it. old None: it appeared; new None: it is gone."""

    type: ResourceType
    key: str
    old: Object | None
    new: Object | None


def key_of(name: str, namespace: str | None) -> str:
    return f"{namespace}/{name}" if namespace else name


def owned_part(body: Mapping[str, Any]) -> Object:
    """What of an object has owners: not its kind, its name and what the API server itself writes."""
    metadata = {k: v for k, v in (body.get("metadata") or {}).items() if k not in (*_IDENTITY, "resourceVersion")}
    rest = {k: v for k, v in body.items() if k not in ("apiVersion", "kind", "metadata")}
    return {**rest, **({"metadata": metadata} if metadata else {})}


class FakeStore:
    """Objects by kind and key. Stored objects are never changed in place: readers may keep them."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._objects: dict[ResourceType, dict[str, Object]] = {}
        self._ownership: dict[str, FakeOwnership] = {}
        self._versions = itertools.count(1)
        self.changes: list[FakeChange] = []

    def of(self, type_: ResourceType) -> dict[str, Object]:
        return self._objects.setdefault(type_, {})

    def find(self, type_: ResourceType, key: str, what: str) -> Object:
        found = self.of(type_).get(key)
        if found is None:
            name = key.rpartition("/")[2]
            plural = f"{type_.plural}.{type_.group}" if type_.group else type_.plural
            raise NotFound(f'{what}: {plural} "{name}" not found', hint="create it, or correct the name")
        return found

    def owners(self, stored: Object) -> FakeOwnership:
        return self._ownership.setdefault(stored["metadata"]["uid"], FakeOwnership())

    def next_version(self) -> str:
        return str(next(self._versions))

    def insert(self, type_: ResourceType, new: Object, namespace: str | None, what: str) -> Object:
        """Take in a new object. Raises: Conflict if it exists; NotFound without its namespace; Refused."""
        metadata = new["metadata"]
        type_.item(metadata["name"], namespace)
        if type_.namespaced:
            metadata["namespace"] = namespace
            self.find(NAMESPACES, str(namespace), what)
        key = key_of(metadata["name"], namespace)
        if key in self.of(type_):
            raise Conflict(f'{what}: {type_.plural} "{metadata["name"]}" already exists', after_seconds=0.1)
        stored = admit(type_.kind, {"apiVersion": type_.api_version, "kind": type_.kind, **new})
        if type_.kind == "Node":
            spec = stored.setdefault("spec", {})
            if not any(t["key"] == NOT_READY_TAINT["key"] for t in spec.get("taints") or ()):
                spec["taints"] = [*(spec.get("taints") or ()), dict(NOT_READY_TAINT)]
        stored["metadata"] = {
            **_tidy(metadata),
            "uid": str(uuid.UUID(int=int(self.next_version()), version=4)),
            "creationTimestamp": rfc3339(self._now()),
            "resourceVersion": self.next_version(),
            **({"generation": 1} if self._has_generation(type_) else {}),
        }
        self._put(type_, key, stored)
        return stored

    def update(
        self, type_: ResourceType, key: str, wanted: Mapping[str, Any], subresource: str | None, what: str
    ) -> Object:
        """Put `wanted` in place of what is stored, as far as `subresource` may write it; returns what is stored then.

        What is equal is not written: it keeps its resourceVersion. An object that was waiting for its last finalizer
        is gone.
        """
        current = self.find(type_, key, what)
        new: Object = {k: v for k, v in wanted.items() if self.may_write(type_, k, subresource)}
        new |= {k: v for k, v in current.items() if not self.may_write(type_, k, subresource)}
        new = admit(type_.kind, new)
        before, own_status = current["metadata"], is_own_kind(type_.kind) and subresource == "status"
        fixed = {k: before[k] for k in (*_IDENTITY, "resourceVersion") if k in before}
        new["metadata"] = {**(before if own_status else _tidy(wanted.get("metadata") or {})), **fixed}
        if "deletionTimestamp" not in new["metadata"] and "deletionTimestamp" in before:
            new["metadata"]["deletionTimestamp"] = before["deletionTimestamp"]
        self._check_finalizers(before, new["metadata"], what)
        if new == current:
            return current
        if self._has_generation(type_) and new.get("spec") != current.get("spec"):
            new["metadata"]["generation"] = before["generation"] + 1
        new["metadata"]["resourceVersion"] = self.next_version()
        if "deletionTimestamp" in before and not new["metadata"].get("finalizers"):
            self.remove(type_, key)
        else:
            self._put(type_, key, new)
        return new

    def begin_deletion(self, type_: ResourceType, key: str, extra: Mapping[str, Any]) -> None:
        """Mark it as being deleted, once."""
        current = self.of(type_)[key]
        if "deletionTimestamp" in current["metadata"]:
            return
        metadata = {**current["metadata"], "deletionTimestamp": rfc3339(self._now()), **extra}
        metadata["resourceVersion"] = self.next_version()
        if "generation" in metadata:
            metadata["generation"] += 1
        self._put(type_, key, {**current, "metadata": metadata})

    def remove(self, type_: ResourceType, key: str) -> None:
        old = self.of(type_).pop(key)
        self._ownership.pop(old["metadata"]["uid"], None)
        self.changes.append(FakeChange(type_, key, old, None))

    def may_write(self, type_: ResourceType, field: str, subresource: str | None) -> bool:
        """Whether `field` of the object is written through `subresource`."""
        if field in ("apiVersion", "kind", "metadata"):
            return True
        return not self.has_status(type_) or (field == "status") is (subresource == "status")

    def has_status(self, type_: ResourceType) -> bool:
        return is_own_kind(type_.kind) or type_.kind in WITH_STATUS

    def _has_generation(self, type_: ResourceType) -> bool:
        return is_own_kind(type_.kind) or type_.kind in GENERATIONS

    def _check_finalizers(self, before: Object, after: Object, what: str) -> None:
        added = set(after.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added and "deletionTimestamp" in before:
            words = "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted"
            raise Refused(f"{what}: {words}, found new finalizers {sorted(added)}", hint="leave it out")

    def _put(self, type_: ResourceType, key: str, new: Object) -> None:
        old = self.of(type_).get(key)
        self.of(type_)[key] = new
        self.changes.append(FakeChange(type_, key, old, new))


def check_preconditions(current: Object, metadata: Mapping[str, Any], what: str) -> None:
    """Raises: Conflict if `metadata` names another resourceVersion, Refused if it names another uid."""
    wanted, found = metadata.get("resourceVersion"), current["metadata"]["resourceVersion"]
    if wanted and wanted != found:
        words = "the object has been modified; please apply your changes to the latest version and try again"
        raise Conflict(f"{what}: Operation cannot be fulfilled: {words}", after_seconds=0.1)
    if metadata.get("uid") and metadata["uid"] != current["metadata"]["uid"]:
        raise Refused(f"{what}: metadata.uid: Invalid value: field is immutable", hint="leave it out")


def _tidy(metadata: Mapping[str, Any]) -> Object:
    """Metadata as stored: empty maps and lists are left out."""
    return {k: copy_json(v) for k, v in metadata.items() if v not in ({}, [], None)}


__all__ = ["FakeChange", "FakeStore", "check_preconditions", "key_of", "owned_part", "schema_of"]
