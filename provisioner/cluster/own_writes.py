"""What this process wrote last, so that it decides on no copy that is older than its own write.

A controller that reads caches sees its own write a moment later. Until then it waits: a decision on the older copy
would do what was done already, or meet a conflict. Nor does it write once more on the copy with which it met another
writer: that would meet the same conflict. ResourceVersions of a kind are numbers that grow (Kubernetes 1.35, KEP-5504).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from provisioner.api import Server
from provisioner.api.machinery.backoff import backoff_seconds, unspread
from provisioner.api.machinery.codec import decode_shared, to_json
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.meta import Resource
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Source

R = TypeVar("R", bound=Resource)

BEHIND_SECONDS: Final = 0.2
"""After so long a controller looks again whether its caches show what it wrote; most often they tell it sooner."""

FORGET: Final = timedelta(seconds=90)
"""An object that is missing from a cache so long after it was written is gone: a dead watch is noticed before."""

BEHIND_AT_MOST: Final = timedelta(seconds=1)
"""So long a newer copy is waited for after a conflict: one may have had another cause. Twice as long after the next
conflict with the same copy: a cache whose watch was lost may be behind for minutes."""

_FIRST_SECONDS: Final = BEHIND_AT_MOST.total_seconds()
_LONGEST_SECONDS: Final = 60.0
"""The longest that a newer copy is waited for after a conflict."""

Object = Mapping[str, Any]


@dataclass(frozen=True)
class _Awaited:
    """The resourceVersion that a cache has to show, and until when at most it is waited for where it may not come.

    conflicts: how many writes in a row met one, with a copy of the version before; 0: we wrote `version` ourselves.
    """

    version: int
    at_most_until: datetime
    conflicts: int = 0


class OwnWrites:
    """Grouped by what is decided together, such as one server. Usable from several threads."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._awaited: dict[str, dict[tuple[ResourceType, str], _Awaited]] = {}

    @contextmanager
    def written_on(self, group: str, type_: ResourceType, copy: Object) -> Iterator[None]:
        """Around a write under the resourceVersion of `copy`: on a Conflict a newer copy is waited for, for a while."""
        try:
            yield
        except Conflict:
            key, version = (type_, str(copy["metadata"]["name"])), version_of(copy) + 1
            with self._lock:
                ours = self._awaited.setdefault(group, {})
                before = ours.get(key)
                if before is None or (before.conflicts and before.version <= version):
                    again = before.conflicts if before is not None and before.version == version else 0
                    wait = backoff_seconds(again + 1, first=_FIRST_SECONDS, cap=_LONGEST_SECONDS, jitter=unspread)
                    ours[key] = _Awaited(version, self._now() + timedelta(seconds=wait), again + 1)
            raise

    def note(self, group: str, type_: ResourceType, written: Object) -> None:
        """Remember what the API server answered to a write."""
        awaited = _Awaited(version_of(written), self._now() + FORGET)
        with self._lock:
            self._awaited.setdefault(group, {})[type_, str(written["metadata"]["name"])] = awaited

    def are_seen(self, group: str, look: Callable[[ResourceType, str], Object | None]) -> bool:
        """Whether the caches, as `look` reads them, show every object of `group` as we wrote it, or later."""
        with self._lock:
            waiting = dict(self._awaited.get(group, {}))
        if not waiting:
            return True
        now = self._now()
        seen, kept = {}, 0
        for key, each in waiting.items():
            cached = look(*key)
            late = now > each.at_most_until
            if late if cached is None else version_of(cached) >= each.version:
                seen[key] = each
            elif each.conflicts and late:
                kept += 1  # it holds nobody up, and its conflicts are counted until a newer copy is there
        with self._lock:
            ours = self._awaited.get(group, {})
            for key, each in seen.items():
                if ours.get(key) == each:
                    del ours[key]
            if not ours:
                self._awaited.pop(group, None)
        return len(seen) + kept == len(waiting)


@dataclass(frozen=True)
class FreshReader:
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

    def written_on(self, server: Server) -> AbstractContextManager[None]:
        """OwnWrites.written_on, of a Server and its own group."""
        if of(Server) not in self.sources:
            return nullcontext()
        return self.own.written_on(server.name, of(Server), {"metadata": to_json(server.metadata)})

    def shows_own_writes(self, group: str) -> bool:
        """Whether all that was noted is seen."""
        return self.own.are_seen(group, self.get)


def version_of(body: Object) -> int:
    """metadata.resourceVersion as the number that it is."""
    return int(body["metadata"].get("resourceVersion") or 0)
