"""An informer's cache that the test fills by hand."""

from __future__ import annotations

from typing import Any

from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.meta import Resource
from provisioner.cluster.source import Index, KeysOf, Watcher


class FakeSource:
    """Fixed contents, empty at first, and (unsynced) broken on request."""

    def __init__(self, *objects: Resource, synced: bool = True) -> None:
        self.objects: dict[str, dict[str, Any]] = {o.metadata.name: encode(o) for o in objects}  # type: ignore[attr-defined]
        self.watchers: list[Watcher] = []
        self._indices: list[Index] = []
        self.has_synced = synced

    def get(self, name: str) -> dict[str, Any] | None:
        return self.objects.get(name)

    def items(self) -> list[dict[str, Any]]:
        return list(self.objects.values())

    def index(self, keys_of: KeysOf) -> Index:
        index = Index(keys_of)
        for name, body in self.objects.items():
            index.put(name, body)
        self._indices.append(index)
        return index

    def subscribe(self, watcher: Watcher) -> None:
        self.watchers.append(watcher)

    def put(self, resource: Resource) -> None:
        old, new = self.objects.get(resource.name), encode(resource)
        self.objects[resource.name] = new
        self._tell(resource.name, old, new)

    def remove(self, name: str) -> None:
        self._tell(name, self.objects.pop(name), None)

    def _tell(self, name: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        for index in self._indices:
            index.put(name, new)
        for watcher in self.watchers:
            watcher(name, old, new)
