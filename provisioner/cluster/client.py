"""Reading and writing objects. Objects are plain JSON dictionaries; `read` and `read_all` give typed kinds."""

from __future__ import annotations

import builtins
import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Conflict, Forbidden, NotFound, Refused
from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.schema import GROUP, VERSION
from provisioner.cluster.access import Access, load_configuration
from provisioner.cluster.bounded_json import LIST_BYTES, PAGE_BYTES
from provisioner.cluster.failures import Busy, Expired, Inapplicable, Oversized
from provisioner.cluster.json_patch import operations
from provisioner.cluster.patience import ForbiddenPatience
from provisioner.cluster.request_name import RequestObserver
from provisioner.cluster.resources import KNOWN, PODS, SELF_REVIEWS, ResourceType, of
from provisioner.cluster.transport import READ_SECONDS, Stream, Transport

PAGE_SIZE: Final = 500
BUSY_SECONDS: Final = 15.0
"""For `Cluster.connect`, of a command: an API server has then begun to serve a kind that it has just learned of."""
SHORTEST_WAIT_SECONDS: Final = 0.1
"""Between two requests of which a busy API server takes nothing in."""

R = TypeVar("R", bound=Resource)
Object = dict[str, Any]


@dataclass(frozen=True)
class ListResult:
    """What a collection held at one moment, and which moment: a watch may begin there."""

    items: list[Object]
    resource_version: str


class Cluster:
    """The door to one API server. Usable from several threads.

    Every method raises the errors of `provisioner.cluster.failures`: Conflict, NotFound, Refused, Retryable; a patient
    one NotYetAllowed instead of Forbidden, for a while.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        patience: ForbiddenPatience | None = None,
        busy_seconds: float = 0.0,
    ) -> None:
        self._transport = transport
        self._timeout_seconds = READ_SECONDS
        self._patience = patience
        self._busy_seconds = busy_seconds
        self._discovered: dict[tuple[str, str], ResourceType] = {}

    @classmethod
    def connect(
        cls,
        kubeconfig: Path | None = None,
        *,
        user_agent: str = "provisioner",
        context: str | None = None,
        as_user: str | None = None,
        as_groups: Sequence[str] = (),
        patient: bool = False,
        busy_seconds: float = 0.0,
        meter: RequestObserver | None = None,
    ) -> Cluster:
        """By `kubeconfig`; without one, as the pod in which this runs. Raises: NeedsHuman. Sends nothing yet.

        `context`: which of the kubeconfig's. `as_user`, `as_groups`: as whom, for who may impersonate. `patient`: what
        is forbidden is Retryable for a while, for a service that outlives restarts of the API server. `busy_seconds`:
        how long a request of which a busy API server takes nothing in is asked again, for a command, which nobody calls
        again. `meter`: counts what is asked, by whichever account. A kubeconfig that changes, or a file that it names,
        is read again: see `Access`.
        """
        access = Access(lambda: load_configuration(kubeconfig, context), kubeconfig)
        transport = Transport(access, user_agent=user_agent, as_user=as_user, as_groups=as_groups, meter=meter)
        return cls(transport, patience=ForbiddenPatience() if patient else None, busy_seconds=busy_seconds)

    def with_timeout(self, seconds: float) -> Cluster:
        """The same door for a caller who cannot wait longer than `seconds` for an answer."""
        other = copy.copy(self)
        other._timeout_seconds = seconds  # noqa: SLF001 - its own copy
        return other

    def acting_as(self, user: str) -> Cluster:
        """The same door for `user`, whom the caller may impersonate: rights, policies and audit log see that user."""
        other = copy.copy(self)
        other._transport = self._transport.acting_as(user)  # noqa: SLF001
        other._patience = ForbiddenPatience() if self._patience is not None else None  # noqa: SLF001
        return other

    @property
    def server_url(self) -> str:
        return self._transport.server_url

    @property
    def ca_pem(self) -> str | None:
        """The authority that the API server's certificate is checked with; None if it is the system's."""
        return self._transport.ca_pem

    @property
    def client_certificate_pem(self) -> str | None:
        """The certificate by which the caller proves who it is; None if it has a token."""
        return self._transport.client_certificate_pem

    def get(self, type: ResourceType, name: str, *, namespace: str | None = None) -> Object:  # noqa: A002
        """One object as it is now. Raises: NotFound."""
        return self._request("GET", type.item(name, namespace), what=f"GET {type} {name}")

    def find(self, type: ResourceType, name: str, *, namespace: str | None = None) -> Object | None:  # noqa: A002
        """The same; None if there is none of that name."""
        try:
            return self.get(type, name, namespace=namespace)
        except NotFound:
            return None

    def list(
        self,
        type: ResourceType,  # noqa: A002
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        trim: Callable[[Object], Object | None] | None = None,
    ) -> ListResult:
        """All objects, of one moment, fetched in pages and read one by one; of each what `trim` makes of it is kept. It
        may be asked again of an object that it was asked of before.
        """
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        path = type.collection(namespace)
        try:
            return self._list_pages(type, path, query, PAGE_SIZE, trim)
        except Expired:
            # The moment of the first page was forgotten before the last one was fetched: once more, in one piece.
            return self._list_pages(type, path, query, None, trim)

    def create(
        self,
        type: ResourceType,  # noqa: A002
        body: Mapping[str, Any],
        *,
        namespace: str | None = None,
        manager: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Create an object. Raises: Conflict if it exists. With `dry_run` the API server decides and writes nothing."""
        metadata = body["metadata"]
        namespace = namespace or metadata.get("namespace")
        what = f"CREATE {type} {metadata.get('name') or metadata.get('generateName')}"
        query = {"fieldManager": manager, "dryRun": "All" if dry_run else None}
        return self._request("POST", type.collection(namespace), what=what, query=query, body=body)

    def ask_who_i_am(self) -> str:
        """The user name by which the API server knows the caller, impersonation included."""
        body = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
        answer = self._request("POST", SELF_REVIEWS.path, what="ASK who I am", body=body)
        return str(answer["status"]["userInfo"]["username"])

    def served_schemas(self) -> Object:
        """What the API server says of the project's kinds: an OpenAPI 3 document. Raises: NotFound if it knows none."""
        return self._request("GET", f"/openapi/v3/apis/{GROUP}/{VERSION}", what="the schemas of our kinds")

    def replace(self, type: ResourceType, body: Mapping[str, Any], *, subresource: str | None = None) -> Object:  # noqa: A002
        """Write the whole object (or its subresource) back. Raises: Conflict if it changed since it was read."""
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        path = type.item(name, namespace, subresource)
        return self._request("PUT", path, what=f"REPLACE {type} {name}", body=body)

    def apply(
        self,
        body: Mapping[str, Any],
        *,
        manager: str,
        subresource: str | None = None,
        force: bool = True,
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply: `manager` owns exactly the fields in `body`, and gives up those that it had before.

        Creates the object if there is none. Raises: Conflict if `metadata.resourceVersion` is given and stale, or,
        without `force`, if another manager owns a field with another value.
        """
        type_ = self._type_of(body)
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        return self._request(
            "PATCH",
            type_.item(name, namespace, subresource),
            what=f"APPLY {type_} {name}",
            query={
                "fieldManager": manager,
                "force": "true" if force else "false",
                "dryRun": "All" if dry_run else None,
            },
            body=body,
            content_type="application/apply-patch+yaml",
        )

    def patch(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        manager: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """JSON merge patch: lists are replaced whole, null removes. A stale resourceVersion in it is a Conflict.

        With `dry_run` the API server decides and writes nothing.
        """
        return self._request(
            "PATCH",
            type.item(name, namespace, subresource),
            what=f"PATCH {type} {name}",
            query={"fieldManager": manager, "dryRun": "All" if dry_run else None},
            body=patch,
            content_type="application/merge-patch+json",
        )

    def strategic_patch(
        self,
        type: ResourceType,  # noqa: A002
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        manager: str | None = None,
        dry_run: bool = False,
    ) -> Object:
        """Strategic merge patch, for built-in kinds only: entries of a list are merged by their key.

        So a condition of a Node is set by its type, and everybody else's stay. A stale resourceVersion is a Conflict.
        With `dry_run` the API server decides and writes nothing.
        """
        return self._request(
            "PATCH",
            type.item(name, namespace, subresource),
            what=f"PATCH {type} {name}",
            query={"fieldManager": manager, "dryRun": "All" if dry_run else None},
            body=patch,
            content_type="application/strategic-merge-patch+json",
        )

    def patch_seen(
        self,
        type: ResourceType,  # noqa: A002
        body: Mapping[str, Any],
        changes: Mapping[str, Any],
        *,
        relies_on: Iterable[str] = (),
        manager: str | None = None,
    ) -> Object:
        """Change what is at the JSON pointers of `changes` (None takes it away) of the object that was read as `body`.

        Raises: Conflict if that, what is at `relies_on`, or the uid is another by now; whatever else was written in
        between does not matter.
        """
        name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
        what, relies_on = f"PATCH {type} {name}", tuple(relies_on)
        try:
            return self._request(
                "PATCH",
                type.item(name, namespace),
                what=what,
                query={"fieldManager": manager},
                body=operations(body, changes, relies_on),
                content_type="application/json-patch+json",
            )
        except Inapplicable as error:
            seen = ", ".join((*changes, *relies_on))
            raise Conflict(f"{what}: one of {seen} is not as it was read", after_seconds=0.1) from error

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
        """Delete an object; False if it is gone already. With `dry_run` the API server, and its policies, decide, and
        nothing is deleted.

        Raises: Conflict if `uid` or `resource_version` is given and it has another.
        """
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value is not None}
        if preconditions:
            options["preconditions"] = preconditions
        if dry_run:
            options["dryRun"] = ["All"]  # in the query it would count for nothing beside a body
        try:
            self._request("DELETE", type.item(name, namespace), what=f"DELETE {type} {name}", body=options)
        except NotFound:
            return False
        return True

    def evict(self, name: str, namespace: str, *, uid: str) -> None:
        """Ask for the eviction of a pod (policy/v1); that it is gone already is fine.

        Raises: Retryable (HTTP 429) while a PodDisruptionBudget forbids it; Conflict if another pod has the name now.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            self._request("POST", PODS.item(name, namespace, "eviction"), what=f"EVICT Pod {name}", body=body)
        except NotFound:
            return

    def read(self, kind: type[R], name: str, *, namespace: str | None = None) -> R:
        """One of the project's own kinds, typed. Raises: NotFound."""
        return decode(kind, self.get(of(kind), name, namespace=namespace))

    def read_all(self, kind: type[R], *, label_selector: str | None = None) -> builtins.list[R]:
        """All objects of one of the project's own kinds, typed."""
        return [decode(kind, item) for item in self.list(of(kind), label_selector=label_selector).items]

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
        """Apply the part of a status that `manager` owns. Raises: NotFound; Conflict if `resource_version` is stale."""
        type_ = of(kind)
        given = {"name": name, "namespace": namespace, "resourceVersion": resource_version}
        metadata = {key: value for key, value in given.items() if value}
        body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": metadata, "status": status}
        return self.apply(body, manager=manager, subresource="status")

    @contextmanager
    def watch(
        self,
        type: ResourceType,  # noqa: A002
        resource_version: str,
        *,
        timeout_seconds: int,
        silence_seconds: float,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Iterator[Stream]:
        """The raw stream of changes since `resource_version`; `cluster.informer` makes use of it."""
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": timeout_seconds,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        path = type.collection(namespace)
        what = f"WATCH {type}"
        with (
            self._bears_refusals(what),
            self._transport.stream(path, what=what, query=query, silence_seconds=silence_seconds) as stream,
        ):
            yield stream

    def _list_pages(
        self,
        type_: ResourceType,
        path: str,
        query: Mapping[str, Any],
        limit: int | None,
        trim: Callable[[Object], Object | None] | None,
    ) -> ListResult:
        # Items of a built-in kind's list come without these two.
        named = {"apiVersion": type_.api_version, "kind": type_.kind}
        items: builtins.list[Object] = []

        def take(item: Object) -> None:
            whole = {**named, **item}
            kept = trim(whole) if trim is not None else whole
            if kept is not None:
                items.append(kept)

        following: str | None = None
        while True:
            asked, whole_pages = {**query, "limit": limit, "continue": following}, len(items)
            most = PAGE_BYTES if limit is not None else LIST_BYTES
            try:
                page = self._request("GET", path, what=f"LIST {type_}", query=asked, max_bytes=most, take=take)
            except Oversized:
                if limit is None or limit == 1:
                    raise
                del items[whole_pages:]
                limit = max(1, limit // 10)
                continue
            following = page["metadata"].get("continue")
            if not following:
                return ListResult(items, page["metadata"]["resourceVersion"])

    def _type_of(self, body: Mapping[str, Any]) -> ResourceType:
        key = (str(body["apiVersion"]), str(body["kind"]))
        found = KNOWN.get(key) or self._discovered.get(key)
        if found is None:
            found = self._discovered[key] = self._discover(*key)
        return found

    def _discover(self, api_version: str, kind: str) -> ResourceType:
        group, _, version = api_version.rpartition("/")
        path = f"/apis/{api_version}" if group else f"/api/{version}"
        for resource in self._request("GET", path, what=f"DISCOVER {api_version}")["resources"]:
            if resource["kind"] == kind and "/" not in resource["name"]:
                return ResourceType(group, version, kind, resource["name"], resource["namespaced"])
        raise Refused(f"the API server has no kind {kind} in {api_version}", hint="correct apiVersion and kind")

    def _request(self, method: str, path: str, *, what: str, **arguments: Any) -> Object:
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                with self._bears_refusals(what):
                    return self._transport.request(
                        method, path, what=what, timeout_seconds=self._timeout_seconds, **arguments
                    )
            except Busy as error:
                wait = max(error.after_seconds, SHORTEST_WAIT_SECONDS)
                if time.monotonic() + wait > until:
                    raise
                time.sleep(wait)

    @contextmanager
    def _bears_refusals(self, what: str) -> Iterator[None]:
        """Around a request: what is forbidden is tried again for a while, if this client is patient."""
        try:
            yield
        except Forbidden as error:
            if self._patience is None:
                raise
            raise self._patience.judge(what, error) from error
        if self._patience is not None:
            self._patience.is_allowed(what)
