"""FakeCluster: the API server in memory, for tests that need thousands of histories. test_fake_cluster.py runs the same
scenarios against it and against a real one.

It knows resourceVersions, uids, generations, finalizers, status subresources, field ownership, field and label
selectors, evictions and PodDisruptionBudgets. It knows no admission but the not-ready taint of a new Node, no CEL rules
and no authorisation, and is used from one thread. Time is the test's.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Conflict, NotFound, Refused, Retryable
from provisioner.api.machinery.meta import Resource
from provisioner.cluster.client import ListResult
from provisioner.cluster.failures import Busy
from provisioner.cluster.json_patch import operations
from provisioner.cluster.resources import KNOWN, NAMESPACES, POD_DISRUPTION_BUDGETS, PODS, ResourceType, of
from tests.cluster.fake_apply import FakeOwnership, copy_json
from tests.cluster.fake_schema import is_own_kind, schema_of
from tests.cluster.fake_selectors import json_patch, matches_fields, matches_labels, merge_patch, strategic_patch
from tests.cluster.fake_store import FakeChange, FakeStore, check_preconditions, key_of, owned_part

R = TypeVar("R", bound=Resource)
Object = dict[str, Any]

ANONYMOUS = "fake"
"""Manager of those who do not say who they are."""
POD_GRACE_SECONDS = 30


class FakeCluster:
    """Has the methods of `Cluster` and raises the same errors."""

    server_url = "https://fake.invalid"
    ca_pem: str | None = None
    client_certificate_pem: str | None = None

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = FakeStore(now)
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    @property
    def changes(self) -> builtins.list[FakeChange]:
        """Everything that ever happened, in order; what a watch would have told."""
        return self._store.changes

    def stored(self, type: ResourceType) -> Mapping[str, Object]:  # noqa: A002
        """Everything of a kind by key, as it is now, without a copy: to be read only."""
        return self._store.of(type)

    def with_timeout(self, seconds: float) -> FakeCluster:
        return self

    def get(self, type: ResourceType, name: str, *, namespace: str | None = None) -> Object:  # noqa: A002
        type.item(name, namespace)
        found: Object = copy_json(self._store.find(type, key_of(name, namespace), f"GET {type} {name}"))
        return found

    def find(self, type: ResourceType, name: str, *, namespace: str | None = None) -> Object | None:  # noqa: A002
        found = self._store.of(type).get(key_of(name, namespace))
        return copy_json(found) if found is not None else None

    def list(
        self,
        type: ResourceType,  # noqa: A002
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        trim: Callable[[Object], Object | None] | None = None,
    ) -> ListResult:
        type.collection(namespace)
        found = [
            copy_json(item)
            for _, item in sorted(self._store.of(type).items())
            if (namespace is None or item["metadata"].get("namespace") == namespace)
            and matches_labels(item, label_selector)
            and matches_fields(item, field_selector)
        ]
        if trim is not None:
            found = [kept for item in found if (kept := trim(item)) is not None]
        return ListResult(found, self._store.next_version())

    def read(self, kind: type[R], name: str, *, namespace: str | None = None) -> R:
        return decode(kind, self._store.find(of(kind), name, f"GET {of(kind)} {name}"))

    def read_all(self, kind: type[R], *, label_selector: str | None = None) -> builtins.list[R]:
        return [decode(kind, item) for item in self.list(of(kind), label_selector=label_selector).items]

    def create(
        self,
        type: ResourceType,  # noqa: A002
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        manager: str | None = None,
    ) -> Object:
        new: Object = copy_json(dict(body))
        metadata = new["metadata"]
        what = f"CREATE {type} {metadata.get('name') or metadata.get('generateName')}"
        if "name" not in metadata:
            metadata["name"] = f"{metadata['generateName']}{int(self._store.next_version()):05x}"
        if metadata.pop("resourceVersion", None):
            raise Retryable(f"{what}: resourceVersion should not be set on objects to be created (HTTP 500)")
        if is_own_kind(type.kind) or type in (PODS, POD_DISRUPTION_BUDGETS):
            new.pop("status", None)
        if type == PODS:
            new["status"] = {"phase": "Pending"}
        stored = self._store.insert(type, new, namespace or metadata.get("namespace"), what)
        self._owners(stored).updated((ANONYMOUS, "Update", ""), schema_of(type.kind), {}, owned_part(stored))
        return self._given(stored)

    def replace(self, type: ResourceType, body: Mapping[str, Any], *, subresource: str | None = None) -> Object:  # noqa: A002
        metadata = body["metadata"]
        what = f"REPLACE {type} {metadata['name']}"
        key = key_of(metadata["name"], metadata.get("namespace"))
        current = self._store.find(type, key, what)
        if is_own_kind(type.kind) and not metadata.get("resourceVersion"):
            raise Refused(f"{what}: metadata.resourceVersion: must be specified for an update", hint="set it")
        check_preconditions(current, metadata, what)
        return self._update(type, key, copy_json(dict(body)), subresource, None, what)

    def patch(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        manager: str | None = None,
    ) -> Object:
        key, what = key_of(name, namespace), f"PATCH {type} {name}"
        current = self._store.find(type, key, what)
        check_preconditions(current, patch.get("metadata") or {}, what)
        return self._update(type, key, merge_patch(current, patch), subresource, manager, what)

    def patch_seen(
        self,
        type: ResourceType,  # noqa: A002
        body: Mapping[str, Any],
        changes: Mapping[str, Any],
        *,
        relies_on: Iterable[str] = (),
        manager: str | None = None,
    ) -> Object:
        metadata = body["metadata"]
        key, what = key_of(metadata["name"], metadata.get("namespace")), f"PATCH {type} {metadata['name']}"
        current = self._store.find(type, key, what)
        patched = json_patch(current, operations(body, changes, relies_on))
        if patched is None:
            raise Conflict(f"{what}: it is not as it was read", after_seconds=0.1)
        return self._update(type, key, patched, None, manager, what)

    def strategic_patch(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        manager: str | None = None,
    ) -> Object:
        key, what = key_of(name, namespace), f"PATCH {type} {name}"
        current = self._store.find(type, key, what)
        check_preconditions(current, patch.get("metadata") or {}, what)
        patched = strategic_patch(schema_of(type.kind), current, patch)
        return self._update(type, key, patched, subresource, manager, what)

    def apply(
        self,
        body: Mapping[str, Any],
        *,
        manager: str,
        subresource: str | None = None,
        force: bool = True,
        dry_run: bool = False,
    ) -> Object:
        type_ = KNOWN[(str(body["apiVersion"]), str(body["kind"]))]
        metadata, schema = body["metadata"], schema_of(type_.kind)
        key, what = key_of(metadata["name"], metadata.get("namespace")), f"APPLY {type_} {metadata['name']}"
        writer = (manager, "Apply", subresource or "")
        said = owned_part({k: v for k, v in body.items() if self._store.may_write(type_, k, subresource)})
        if key not in self._store.of(type_) and subresource is None:
            # A resourceVersion in it does not keep the API server from making the object anew.
            new = {**said, "metadata": {**metadata}}
            stored = self._store.insert(type_, copy_json(new), metadata.get("namespace"), what)
            self._owners(stored).apply(writer, schema, said, {})
            return self._given(stored)
        current = self._store.find(type_, key, what)
        check_preconditions(current, metadata, what)
        owners = self._owners(current)
        if not force and (others := owners.conflicts(writer, schema, said, current)):
            raise Conflict(f"{what}: Apply failed with conflicts: {', '.join(others)}", after_seconds=0.1)
        before = owners.snapshot()
        try:
            merged = owners.apply(writer, schema, said, copy_json(current))
            if not dry_run:
                merged = self._store.update(type_, key, merged, subresource, what)
        except Refused:
            owners.restore(before)
            raise
        if dry_run:
            owners.restore(before)
        return self._given(merged)

    def apply_status(
        self,
        kind: type[Resource],
        name: str,
        status: Mapping[str, Any],
        *,
        manager: str,
        resource_version: str | None = None,
        namespace: str | None = None,
    ) -> Object:
        given = {"name": name, "namespace": namespace, "resourceVersion": resource_version}
        metadata = {key: value for key, value in given.items() if value}
        type_ = of(kind)
        body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": metadata, "status": status}
        return self.apply(body, manager=manager, subresource="status")

    def delete(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        dry_run: bool = False,
    ) -> bool:
        key, what = key_of(name, namespace), f"DELETE {type} {name}"
        try:
            current = self._store.find(type, key, what)
        except NotFound:
            return False
        if uid is not None and uid != current["metadata"]["uid"]:
            raise Conflict(f"{what}: the UID in the precondition ({uid}) does not match", after_seconds=0.1)
        if resource_version is not None and resource_version != current["metadata"]["resourceVersion"]:
            raise Conflict(f"{what}: the ResourceVersion in the precondition does not match", after_seconds=0.1)
        if dry_run:
            return True
        if type == PODS and (current.get("spec") or {}).get("nodeName"):
            # Its kubelet, which nobody plays here, would confirm that it has ended: see `remove_pod`.
            self._store.begin_deletion(type, key, {"deletionGracePeriodSeconds": POD_GRACE_SECONDS})
        elif current["metadata"].get("finalizers"):
            self._store.begin_deletion(type, key, {"deletionGracePeriodSeconds": 0})
        else:
            self._store.remove(type, key)
        return True

    def remove_pod(self, name: str, namespace: str) -> None:
        """What a kubelet does once a pod has ended: it is gone."""
        self._store.remove(PODS, key_of(name, namespace))

    def evict(self, name: str, namespace: str, *, uid: str) -> None:
        what = f"EVICT Pod {name}"
        try:
            pod = self._store.find(PODS, key_of(name, namespace), what)
        except NotFound:
            return
        ends_anyway = "deletionTimestamp" in pod["metadata"] or pod["status"]["phase"] != "Running"
        for key, budget in [] if ends_anyway else list(self._store.of(POD_DISRUPTION_BUDGETS).items()):
            selector = ((budget.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
            labels = pod["metadata"].get("labels") or {}
            if budget["metadata"]["namespace"] != namespace or not selector.items() <= labels.items():
                continue
            status = dict(budget.get("status") or {})
            if status.get("observedGeneration", 0) < budget["metadata"]["generation"]:
                raise Busy(f"{what}: Cannot evict pod as it would violate its budget (HTTP 429)")
            if status.get("disruptionsAllowed", 0) <= 0:
                words = f"The disruption budget {budget['metadata']['name']} needs more healthy pods"
                raise Busy(f"{what}: Cannot evict pod: {words} (HTTP 429)")
            status["disruptionsAllowed"] -= 1
            self._store.update(POD_DISRUPTION_BUDGETS, key, {**budget, "status": status}, "status", what)
        # The API server, too, takes it off the budget first and looks at the uid then.
        self.delete(PODS, name, namespace=namespace, uid=uid)

    def _update(
        self,
        type_: ResourceType,
        key: str,
        wanted: Object,
        subresource: str | None,
        manager: str | None,
        what: str,
    ) -> Object:
        before = self._store.find(type_, key, what)
        after = self._store.update(type_, key, wanted, subresource, what)
        if key in self._store.of(type_) and after is not before:
            writer = (manager or ANONYMOUS, "Update", subresource or "")
            self._owners(before).updated(writer, schema_of(type_.kind), owned_part(before), owned_part(after))
        return self._given(after)

    def _owners(self, stored: Object) -> FakeOwnership:
        return self._store.owners(stored)

    def _given(self, stored: Object) -> Object:
        given: Object = copy_json(stored)
        return given
