"""Measures nodes' clocks by their Leases: renewTime is by the node's clock, and is compared when it is seen to change.

What delays a watch only makes a node look behind, so the smallest of the last sightings is the best one. In memory
only: after a restart a clock is known again once its Lease was renewed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.rules.liveness import renewed_time

SIGHTINGS: Final = 3
MAX_AGE: Final = timedelta(seconds=60)


class ClockSkew:
    """How far each node's clock is off. Usable from several threads. `now` is the controller's clock."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._seen: dict[str, deque[tuple[datetime, float]]] = {}

    def saw(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        """The Lease of Node `name` was seen to change. A Lease seen for the first time may be of any age."""
        before, renewed = renewed_time(old), renewed_time(new)
        with self._lock:
            if new is None:
                self._seen.pop(name, None)
            elif before is not None and renewed is not None and renewed != before:
                now = self._now()
                sightings = self._seen.setdefault(name, deque(maxlen=SIGHTINGS))
                sightings.append((now, (renewed - now).total_seconds()))

    def of(self, name: str, *, since: datetime | None = None) -> float | None:
        """Seconds by which the node's clock is ahead (below 0: behind); None if it was not seen lately.

        since: when the boot joined; what was seen before tells of another one's clock.
        """
        with self._lock:
            now = self._now()
            oldest = max(now - MAX_AGE, since) if since is not None else now - MAX_AGE
            lately = [skew for moment, skew in self._seen.get(name, ()) if moment >= oldest]
        return min(lately, key=abs) if lately else None
