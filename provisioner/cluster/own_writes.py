"""What this process wrote last, so that it decides on no copy that is older than its own write.

A controller that reads caches sees its own write a moment later. Until then it waits: a decision on the older copy
would do what was done already, or meet a conflict. ResourceVersions of a kind are numbers that grow (Kubernetes 1.35,
KEP-5504).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from provisioner.api import Server
from provisioner.api.codec import decode_shared, to_json
from provisioner.api.meta import Resource
from provisioner.api.server import ServerStatus
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Source

R = TypeVar("R", bound=Resource)

BEHIND_SECONDS: Final = 0.2
"""After so long a controller looks again whether its caches show what it wrote; most often they tell it sooner."""

FORGET: Final = timedelta(seconds=90)
"""An object that is missing from a cache so long after it was written is gone: a dead watch is noticed before."""

Object = Mapping[str, Any]


class OwnWrites:
    """Grouped by what is decided together, such as one server. Usable from several threads."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._written: dict[str, dict[tuple[ResourceType, str], tuple[int, datetime]]] = {}

    def note(self, group: str, type_: ResourceType, written: Object) -> None:
        """Remember what the API server answered to a write."""
        key, version = (type_, str(written["metadata"]["name"])), version_of(written)
        with self._lock:
            self._written.setdefault(group, {})[key] = (version, self._now())

    def are_seen(self, group: str, look: Callable[[ResourceType, str], Object | None]) -> bool:
        """Whether the caches, as `look` reads them, show every object of `group` as we wrote it, or later."""
        with self._lock:
            waiting = dict(self._written.get(group, {}))
        if not waiting:
            return True
        seen = {key: each for key, each in waiting.items() if self._is_seen(look(*key), *each)}
        with self._lock:
            ours = self._written.get(group, {})
            for key, each in seen.items():
                if ours.get(key) == each:
                    del ours[key]
            if not ours:
                self._written.pop(group, None)
        return len(seen) == len(waiting)

    def _is_seen(self, cached: Object | None, version: int, written: datetime) -> bool:
        if cached is None:
            return self._now() - written > FORGET
        return version_of(cached) >= version


@dataclass(frozen=True)
class Reader:
    """Objects without a namespace, out of the caches that are given, else from the API server.

    `own`: by group, what was written and the caches may not show yet.
    """

    cluster: Cluster
    sources: Mapping[ResourceType, Source]
    own: OwnWrites

    def get(self, type_: ResourceType, name: str) -> dict[str, Any] | None:
        """The object of that name, if there is one. Raises: Retryable, where the API server is asked."""
        source = self.sources.get(type_)
        return source.get(name) if source is not None else self.cluster.find(type_, name)

    def read(self, kind: type[R], name: str) -> R | None:
        """The same, typed."""
        found = self.get(of(kind), name)
        return decode_shared(kind, found) if found is not None else None

    def note(self, group: str, type_: ResourceType, written: Object) -> None:
        """Remember what the API server answered to a write."""
        if type_ in self.sources:
            self.own.note(group, type_, written)

    def shows_own_writes(self, group: str) -> bool:
        """Whether all that was noted is seen."""
        return self.own.are_seen(group, self.get)


@dataclass(frozen=True)
class OwnedStatus:
    """The part of a Server's status that one writer owns: which fields, and which types of condition."""

    fields: tuple[str, ...]
    conditions: tuple[str, ...]

    def differs(self, server: Object, wanted: Object) -> bool:
        """Whether it is not `wanted`, which holds all of it that is to be there."""
        written, expected = to_json(decode_shared(Server, server).status), to_json(ServerStatus()) | dict(wanted)
        found = [each for each in written.get("conditions", ()) if each["type"] in self.conditions]
        by_type = {each["type"]: each for each in found}
        return (
            any(written.get(field) != expected.get(field) for field in self.fields)
            or by_type != {each["type"]: each for each in wanted["conditions"]}
            or len(found) != len(by_type)
        )

    def keeps_conditions(self, server: Object, wanted: Object) -> bool:
        """Whether no condition changes its status by what is wanted."""
        found = decode_shared(Server, server).status.conditions
        before = {each.type: each.status for each in found if each.type in self.conditions}
        return before == {each["type"]: each["status"] for each in wanted["conditions"]}


def version_of(body: Object) -> int:
    """metadata.resourceVersion as the number that it is."""
    return int(body["metadata"].get("resourceVersion") or 0)
