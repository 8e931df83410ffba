"""The Events about an object, bounded: everybody who may write Events writes as many and as large ones as they like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.cluster.client import Cluster
from provisioner.cluster.events import CLUSTER_SCOPED_NAMESPACE
from provisioner.cluster.resources import EVENTS
from provisioner.cluster.trim import IDENTITY, VALUE_LETTERS, Object, picked

MOST: Final = 200
"""Of the Events about one object."""
MESSAGE_LETTERS: Final = 1024
"""Of the message of an Event: as much as the API server takes of one in its newer form."""
CUT_OFF: Final = " … (cut off)"
_NUMBER_AND_TIMES: Final = ("count", "firstTimestamp", "lastTimestamp", "eventTime", "type", "reason")


@dataclass(frozen=True)
class RecentEvents:
    """events: the newest, oldest first. left_out: how many older ones there are."""

    events: tuple[Object, ...] = ()
    left_out: int = 0


def read_events(cluster: Cluster, name: str) -> RecentEvents:
    """Those of the Server, the Node and other objects without a namespace that bear `name`.

    Raises: Refused if they may not be read, Retryable.
    """
    found: dict[str, Object] = {}
    seen: set[str] = set()

    def keep_newest() -> list[str]:
        return sorted(found, key=lambda key: event_time(found[key]))[-MOST:]

    def take(event: Object) -> None:
        key = str(event["metadata"].get("uid") or event["metadata"]["name"])
        seen.add(key)
        found[key] = trim_event(event)
        if len(found) >= 2 * MOST:
            kept = {key: found[key] for key in keep_newest()}
            found.clear()
            found.update(kept)

    cluster.list(EVENTS, namespace=CLUSTER_SCOPED_NAMESPACE, field_selector=f"involvedObject.name={name}", trim=take)
    newest = keep_newest()
    return RecentEvents(tuple(found[key] for key in newest), len(seen) - len(newest))


def trim_event(event: Object) -> Object:
    """What is shown of an Event."""
    regarding = picked(event.get("involvedObject"), ("apiVersion", "kind", "namespace", "name", "uid"), VALUE_LETTERS)
    message = message_of(event)
    return {
        **picked(event, ("apiVersion", "kind", *_NUMBER_AND_TIMES), VALUE_LETTERS),
        "metadata": picked(event["metadata"], (*IDENTITY, "creationTimestamp")),
        "involvedObject": regarding,
        "series": picked(event.get("series"), ("count", "lastObservedTime"), VALUE_LETTERS),
        "source": picked(event.get("source"), ("component", "host"), VALUE_LETTERS),
        "message": message if len(message) <= MESSAGE_LETTERS else message[:MESSAGE_LETTERS] + CUT_OFF,
    }


def message_of(event: Mapping[str, Any]) -> str:
    return str(event.get("message") or event.get("note") or "")


def event_time(event: Mapping[str, Any]) -> str:
    """When it happened last."""
    series, metadata = event.get("series") or {}, event.get("metadata") or {}
    times = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
    )
    return str(next((t for t in times if t), metadata.get("creationTimestamp") or ""))
