"""Remembers when each Lease was seen to change: the nodes' clocks, by which Leases are renewed, may be wrong."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sighting:
    """How long a Lease has been seen as it is, and whether it was seen to become so."""

    age_seconds: float
    moved: bool


@dataclass(frozen=True)
class _Seen:
    renewed: str
    since: float
    moved: bool


class LeaseWatch:
    """In memory only: after a restart each Lease is new once. Usable from several threads. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def look(self, name: str, lease: Mapping[str, Any] | None) -> Sighting | None:
        """Take note of the Lease of Node `name` as it is now; None without a Lease that was ever renewed."""
        renewed = ((lease or {}).get("spec") or {}).get("renewTime")
        with self._lock:
            now = self._clock()
            if not renewed:
                self._seen.pop(name, None)
                return None
            seen = self._seen.get(name)
            if seen is None or seen.renewed != renewed:
                seen = self._seen[name] = _Seen(renewed, now, moved=seen is not None)
            return Sighting(now - seen.since, seen.moved)
