"""Objects of an informer by what they belong to, so that a server finds its own without looking at everybody's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from provisioner.cluster.source import Object


class Index:
    """Objects by their owner's name; `owner_of` returns None for what is of no interest. Follow with `changed`."""

    def __init__(self, owner_of: Callable[[Mapping[str, Any]], str | None]) -> None:
        self._owner_of = owner_of
        self._lock = threading.Lock()
        self._objects: dict[str, dict[str, Object]] = {}

    def changed(self, key: str, old: Object | None, new: Object | None) -> None:
        """Take over a change, as an informer tells it."""
        with self._lock:
            before = self._owner_of(old) if old is not None else None
            if before is not None:
                mine = self._objects.get(before, {})
                mine.pop(key, None)
                if not mine:
                    self._objects.pop(before, None)
            after = self._owner_of(new) if new is not None else None
            if after is not None and new is not None:
                self._objects.setdefault(after, {})[key] = new

    def of(self, owner: str) -> list[Object]:
        with self._lock:
            return list(self._objects.get(owner, {}).values())


def label(name: str) -> Callable[[Mapping[str, Any]], str | None]:
    """Owned by whom a label names."""
    return lambda body: (body["metadata"].get("labels") or {}).get(name)
