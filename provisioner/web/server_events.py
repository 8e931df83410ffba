"""Events of a server, asked for when somebody looks: they are many, short-lived, and of no use to the other pages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from provisioner.api.machinery.errors import ProvisionerError
from provisioner.cluster.client import Cluster
from provisioner.cluster.recent_events import RecentEvents, event_time, message_of, read_events
from provisioner.web.shared import Shared

log = structlog.get_logger()

KEPT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
AT_ONCE: Final = 2
SHOWN: Final = 50


class EventReader:
    """Usable from several threads."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster.with_timeout(ANSWER_SECONDS)
        self._kept: Shared[RecentEvents | None] = Shared(KEPT_SECONDS, clock)
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def of(self, name: str) -> RecentEvents | None:
        """Those of the Server and the Node of that name. None if they cannot be read now."""
        return self._kept.get(name, lambda: self._read(name))

    def _read(self, name: str) -> RecentEvents | None:
        if not self._turns.acquire(timeout=ANSWER_SECONDS):
            return None
        try:
            return read_events(self._cluster, name)
        except ProvisionerError as error:
            log.warning("events not read", error=str(error))
            return None
        finally:
            self._turns.release()


@dataclass(frozen=True)
class ShownEvents:
    """rows: the newest first. left_out: how many others there are."""

    rows: tuple[Mapping[str, Any], ...]
    left_out: int


def shown_events(read: RecentEvents | None) -> ShownEvents | None:
    """What the page shows: the Server and its Node are told the same, which is shown once."""
    if read is None:
        return None
    told = {(event.get("reason"), message_of(event)): event for event in sorted(read.events, key=event_time)}
    newest = sorted(told.values(), key=event_time, reverse=True)
    rows = tuple(
        {
            "time": event_time(event),
            "type": str(event.get("type") or ""),
            "reason": str(event.get("reason") or ""),
            "count": int((event.get("series") or {}).get("count") or event.get("count") or 1),
            "message": message_of(event),
        }
        for event in newest[:SHOWN]
    )
    return ShownEvents(rows, len(newest) - len(rows) + read.left_out)
