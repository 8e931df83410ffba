"""An index for caches that a test fills by hand: it looks through all of them each time."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from provisioner.cluster.source import KeysOf

T = TypeVar("T")


class ScannedIndex:
    """What `Source.index` gives, over `items`."""

    def __init__(self, items: Callable[[], list[dict[str, Any]]], keys_of: KeysOf) -> None:
        self._items, self._keys_of = items, keys_of

    def get(self, key: Hashable, /) -> list[dict[str, Any]]:
        return [item for item in self._items() if key in self._keys_of(item)]

    def summary(self, key: Hashable, make: Callable[[list[dict[str, Any]]], T], /) -> T:
        return make(self.get(key))
