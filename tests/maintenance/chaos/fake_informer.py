"""An informer that is caught up by hand, so that a test decides how stale a cache is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from provisioner.cluster.resources import ResourceType
from provisioner.cluster.source import KeysOf
from tests.cluster.scanned_index import ScannedIndex

Object = dict[str, Any]
Handler = Callable[[str, Object | None, Object | None], None]


class FakeInformer:
    """Shows the collection as it was at the last `catch_up`; `look` gives it as it is now, by key."""

    def __init__(self, type_: ResourceType, look: Callable[[], dict[str, Object]]) -> None:
        self.type = type_
        self._look = look
        self._objects: dict[str, Object] = {}
        self._handlers: list[Handler] = []
        self.has_synced = False

    def get(self, name: str) -> Object | None:
        return self._objects.get(name)

    def items(self) -> list[Object]:
        return list(self._objects.values())

    def index(self, keys_of: KeysOf) -> ScannedIndex:
        return ScannedIndex(self.items, keys_of)

    def subscribe(self, handler: Handler) -> None:
        self._handlers.append(handler)
        for key, object_ in list(self._objects.items()):
            handler(key, None, object_)

    def catch_up(self) -> None:
        """Take in what changed, and tell of it."""
        now, before = self._look(), self._objects
        self._objects, self.has_synced = dict(now), True
        for key in [key for key in before if key not in now]:
            self._tell(key, before[key], None)
        for key, new in now.items():
            old = before.get(key)
            if old is not new and (old or {}).get("metadata") != new["metadata"]:
                self._tell(key, old, new)

    def _tell(self, key: str, old: Object | None, new: Object | None) -> None:
        for handler in self._handlers:
            handler(key, old, new)
