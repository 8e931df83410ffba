"""FakeSource: a copy of a collection that the test changes, in place of one that follows an API server."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from provisioner.cluster.source import Index, Watcher
from provisioner.web.caches import WebCaches, caches_of

Object = dict[str, Any]


class FakeSource:
    """Tells of changes as an informer does: in the thread that makes them, once the index shows them."""

    has_synced = True

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, Object] = {}
        self._indices: list[Index] = []
        self._watchers: list[Watcher] = []
        self._versions = itertools.count(1)
        for each in objects:
            self.put(each)

    def get(self, name: str, /) -> Object | None:
        return self._objects.get(name)

    def items(self) -> list[Object]:
        return list(self._objects.values())

    def index(self, keys_of: Callable[[Object], Iterable[Hashable]], /) -> Index:
        index = Index(keys_of)
        for name, body in self._objects.items():
            index.put(name, body)
        self._indices.append(index)
        return index

    def subscribe(self, watcher: Watcher, /) -> None:
        self._watchers.append(watcher)
        for name, body in list(self._objects.items()):
            watcher(name, None, body)

    def put(self, new: Object) -> None:
        """`new` is there from here on. It is not changed any more."""
        name = new["metadata"]["name"]
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(next(self._versions))}}
        with self._lock:
            old = self._objects.get(name)
            self._objects[name] = new
        self._tell(name, old, new)

    def delete(self, name: str) -> None:
        with self._lock:
            old = self._objects.pop(name)
        self._tell(name, old, None)

    def _tell(self, name: str, old: Object | None, new: Object | None) -> None:
        for index in self._indices:
            index.put(name, new)
        for watcher in self._watchers:
            watcher(name, old, new)


def fake_caches(**objects: Iterable[Object]) -> WebCaches:
    """By the names of the fields of `Caches`."""
    names = ("racks", "servers", "pools", "images", "maintenances", "nodes")
    return caches_of(*(FakeSource(objects.get(name, ())) for name in names))
