"""What a boot host knows of the cluster, and how old that is: it serves on from it while the API server is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client.core import Metric

from provisioner.cluster.informer import Informer
from provisioner.cluster.series import gauge
from provisioner.cluster.source import Watcher


class InventoryMeter:
    """`clock`: seconds since 1970. Follows the caches from the start on."""

    def __init__(self, caches: Iterable[Informer], clock: Callable[[], float] = time.time) -> None:
        self._caches, self._clock = tuple(caches), clock
        self._changed: dict[str, float] = {}
        for cache in self._caches:
            cache.subscribe(self._notes(cache.kind))

    def families(self) -> Iterable[Metric]:
        now, kinds = self._clock(), ("kind",)
        yield gauge("inventory_synced", "1 once the copy has been complete.", kinds, self._each(lambda c: c.has_synced))
        yield gauge("inventory_objects", "Objects that are known.", kinds, self._each(len))
        words = "When the API server last said anything of that kind; 0 before the copy has been complete."
        heard = self._each(lambda cache: now - cache.heard_seconds() if cache.has_synced else 0.0)
        yield gauge("inventory_heard_timestamp_seconds", words, kinds, heard)
        words = "When an object of that kind was last seen to change; 0: never."
        changed = self._each(lambda cache: self._changed.get(cache.kind, 0.0))
        yield gauge("inventory_changed_timestamp_seconds", words, kinds, changed)

    def _each(self, value: Callable[[Informer], float]) -> Mapping[tuple[str, ...], float]:
        return {(cache.kind,): float(value(cache)) for cache in self._caches}

    def _notes(self, kind: str) -> Watcher:
        def changed(_key: str, _old: Any, _new: Any) -> None:
            self._changed[kind] = self._clock()

        return changed
