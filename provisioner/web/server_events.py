"""Events of a server, asked for when somebody looks: they are many, short-lived, and of no use to the other pages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from provisioner.api.errors import ProvisionerError
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import CLUSTER_SCOPED_NAMESPACE
from provisioner.cluster.resources import EVENTS
from provisioner.web.shared import Shared

log = structlog.get_logger()

Object = Mapping[str, Any]
KEPT_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
AT_ONCE: Final = 2
SHOWN: Final = 50


class EventReader:
    """Usable from several threads."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster.with_timeout(ANSWER_SECONDS)
        self._kept: Shared[tuple[Object, ...] | None] = Shared(KEPT_SECONDS, clock)
        self._turns = threading.BoundedSemaphore(AT_ONCE)

    def of(self, name: str) -> tuple[Object, ...] | None:
        """Those of the Server and the Node of that name. None if they cannot be read now."""
        return self._kept.get(name, lambda: self._read(name))

    def _read(self, name: str) -> tuple[Object, ...] | None:
        if not self._turns.acquire(timeout=ANSWER_SECONDS):
            return None
        try:
            selector = f"involvedObject.name={name}"
            return tuple(self._cluster.list(EVENTS, namespace=CLUSTER_SCOPED_NAMESPACE, field_selector=selector).items)
        except ProvisionerError as error:
            log.warning("events not read", error=str(error))
            return None
        finally:
            self._turns.release()


def shown_events(events: Sequence[Object] | None) -> list[dict[str, Any]] | None:
    """The newest first, as the page shows them: the Server and its Node are told the same, which is shown once."""
    if events is None:
        return None
    told = {(event.get("reason"), _message(event)): event for event in sorted(events, key=_time)}
    newest = sorted(told.values(), key=_time, reverse=True)[:SHOWN]
    return [
        {
            "time": _time(event),
            "type": str(event.get("type") or ""),
            "reason": str(event.get("reason") or ""),
            "count": int((event.get("series") or {}).get("count") or event.get("count") or 1),
            "message": _message(event),
        }
        for event in newest
    ]


def _time(event: Object) -> str:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((each for each in times if each), (event.get("metadata") or {}).get("creationTimestamp") or ""))


def _message(event: Object) -> str:
    return str(event.get("message") or event.get("note") or "")
