"""Events that `kubectl describe` shows: recorded in the background, the same one counted instead of repeated.

An Event's name is computed from what it says, so that a program that was started again, or a second replica, counts on
where the first one stopped. Events are a courtesy: if the API server does not take them, they are dropped with a log
line, and nobody waits.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import structlog

from provisioner.api.errors import Conflict, NotFound, ProvisionerError, Retryable
from provisioner.api.meta import rfc3339
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import EVENTS

log = structlog.get_logger()

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, kw_only=True)
class Happened:
    """An Event that a decision wants recorded once what it decided is written."""

    type: EventType
    reason: str
    message: str


class Events(Protocol):
    """Where Events go: `EventRecorder`, or what a test puts in its place."""

    def record(self, regarding: Mapping[str, Any], type: EventType, reason: str, message: str) -> None: ...  # noqa: A002


MAX_PENDING: Final = 1000
MAX_MESSAGE_LENGTH: Final = 1024
REQUEST_SECONDS: Final = 5.0
ATTEMPTS: Final = 3

# The API server wants events about objects without a namespace here.
CLUSTER_SCOPED_NAMESPACE: Final = "default"


@dataclass(frozen=True)
class _Occurrence:
    """What happened; equal ones are counted together."""

    api_version: str
    kind: str
    namespace: str | None
    name: str
    uid: str | None
    type: EventType
    reason: str
    message: str

    @property
    def event_namespace(self) -> str:
        return self.namespace or CLUSTER_SCOPED_NAMESPACE


@dataclass
class _Tally:
    """How often since it was last written, and when."""

    first: datetime
    last: datetime
    count: int = 0


class EventRecorder:
    """Records events as `component`. The first `record` starts its thread."""

    def __init__(
        self,
        cluster: Cluster,
        component: str,
        *,
        instance: str | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._cluster = cluster.with_timeout(REQUEST_SECONDS)
        self._component = component
        self._instance = instance or component
        self._now = now
        self._max_pending = max_pending
        self._changed = threading.Condition()
        self._pending: OrderedDict[_Occurrence, _Tally] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._writing = False
        self._closed = threading.Event()

    def record(self, regarding: Mapping[str, Any], type: EventType, reason: str, message: str) -> None:  # noqa: A002
        """Tell that something happened to the object `regarding` (apiVersion, kind, metadata). Never raises."""
        try:
            metadata = regarding["metadata"]
            occurrence = _Occurrence(
                api_version=str(regarding["apiVersion"]),
                kind=str(regarding["kind"]),
                namespace=metadata.get("namespace"),
                name=str(metadata["name"]),
                uid=metadata.get("uid"),
                type=type,
                reason=reason,
                message=message if len(message) <= MAX_MESSAGE_LENGTH else message[: MAX_MESSAGE_LENGTH - 1] + "…",
            )
            self._put(occurrence)
        except Exception:
            log.exception("event not recorded", reason=reason, message=message)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until everything recorded so far was written or dropped; whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending and not self._writing, timeout_seconds)

    def close(self, timeout_seconds: float = 5.0) -> None:
        """Write what is pending, for `timeout_seconds` at most, and take no more."""
        self.flush(timeout_seconds)
        with self._changed:
            self._closed.set()
            self._changed.notify_all()

    def _put(self, occurrence: _Occurrence) -> None:
        with self._changed:
            if self._closed.is_set():
                return
            now = self._now()
            tally = self._pending.get(occurrence)
            if tally is None:
                if len(self._pending) >= self._max_pending:
                    log.warning("event dropped", reason=occurrence.reason, name=occurrence.name, error="too many wait")
                    return
                tally = self._pending[occurrence] = _Tally(first=now, last=now)
            tally.count += 1
            tally.last = now
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"events-{self._component}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._pending or self._closed.is_set())
                if self._closed.is_set():
                    return
                occurrence, tally = self._pending.popitem(last=False)
                self._writing = True
            try:
                self._write_patiently(occurrence, tally)
            except ProvisionerError as error:
                log.warning("event dropped", reason=occurrence.reason, name=occurrence.name, error=str(error))
            except Exception:
                log.exception("event dropped", reason=occurrence.reason, name=occurrence.name)

    def _write_patiently(self, occurrence: _Occurrence, tally: _Tally) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._write(occurrence, tally)
                return
            except Retryable as error:
                if attempt == ATTEMPTS - 1:
                    raise
                self._closed.wait(min(error.after_seconds, REQUEST_SECONDS))

    def _write(self, occurrence: _Occurrence, tally: _Tally) -> None:
        """Count it on the Event that says it already, or create that. Raises: Conflict if both changed meanwhile."""
        name, namespace = event_name(occurrence.name, occurrence, self._component), occurrence.event_namespace
        try:
            existing = self._cluster.get(EVENTS, name, namespace=namespace)
        except NotFound:
            self._cluster.create(EVENTS, self._body(name, occurrence, tally))
            return
        patch = {
            # Another replica may count at the same time: a stale version is a Conflict, and tried again.
            "metadata": {"resourceVersion": existing["metadata"]["resourceVersion"]},
            "count": int(existing.get("count") or 0) + tally.count,
            "lastTimestamp": rfc3339(tally.last),
        }
        try:
            self._cluster.patch(EVENTS, name, patch, namespace=namespace)
        except NotFound as error:
            raise Conflict(str(error), after_seconds=0.1) from error  # it expired this moment

    def _body(self, name: str, occurrence: _Occurrence, tally: _Tally) -> dict[str, Any]:
        regarding = {
            "apiVersion": occurrence.api_version,
            "kind": occurrence.kind,
            "name": occurrence.name,
            "namespace": occurrence.namespace,
            "uid": occurrence.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": occurrence.event_namespace},
            "involvedObject": {key: value for key, value in regarding.items() if value},
            "type": occurrence.type,
            "reason": occurrence.reason,
            "message": occurrence.message,
            "count": tally.count,
            "firstTimestamp": rfc3339(tally.first),
            "lastTimestamp": rfc3339(tally.last),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
        }


def event_name(name: str, said: object, component: str) -> str:
    """`<object>.<digest of what is said and by whom>`: the same words about the same object have the same name."""
    digest = hashlib.sha256(f"{component}\0{said!r}".encode()).hexdigest()
    return f"{name[:230].rstrip('.-')}.{digest[:16]}"
