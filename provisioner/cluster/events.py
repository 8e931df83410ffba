"""Events that `kubectl describe` shows: recorded in the background, the same one counted instead of repeated.

An Event's name is computed from what it says, so that a program that was started again, or a second replica, counts on
where the first one stopped. It is created without a look first; where it exists, it is counted on, by what this process
wrote last or, if it did not, by one GET. Events are a courtesy: they come slowly where thousands happen at once, and if
the API server does not take them, or too many wait, they are dropped with a log line, and nobody waits.
"""

from __future__ import annotations

import hashlib
import threading
import time
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


MAX_PENDING: Final = 3000
"""A Warning is kept beyond that, up to twice as many, and goes first."""
MAX_REMEMBERED: Final = 4096
BURST: Final = 200
PER_SECOND: Final = 20.0
"""Events written at once, and then each second: a fleet that is registered is no reason to keep its orders waiting."""
DROPS_TOLD_SECONDS: Final = 10.0
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
        self._written: OrderedDict[str, tuple[str, int]] = OrderedDict()  # resourceVersion and count of ours, by name
        self._allowed, self._allowed_at = float(BURST), time.monotonic()
        self._dropped, self._told_at = 0, 0.0
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
                is_warning = occurrence.type == "Warning"
                if len(self._pending) >= self._max_pending * (2 if is_warning else 1):
                    self._drop(occurrence)
                    return
                tally = self._pending[occurrence] = _Tally(first=now, last=now)
                self._pending.move_to_end(occurrence, last=not is_warning)
            tally.count += 1
            tally.last = now
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"events-{self._component}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _drop(self, occurrence: _Occurrence) -> None:
        self._dropped += 1
        if time.monotonic() - self._told_at >= DROPS_TOLD_SECONDS:
            log.warning("events dropped", count=self._dropped, last=occurrence.name, error="too many wait")
            self._dropped, self._told_at = 0, time.monotonic()

    def _pace(self) -> None:
        """Wait until another Event may be written, but not once they are to be written out."""
        now = time.monotonic()
        self._allowed = min(BURST, self._allowed + (now - self._allowed_at) * PER_SECOND)
        self._allowed_at = now
        if self._allowed < 1:
            self._closed.wait((1 - self._allowed) / PER_SECOND)
        self._allowed -= 1

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
                self._pace()
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
        """Create it, or count on the one that says it already. Raises: Conflict if that changed meanwhile."""
        name, namespace = event_name(occurrence.name, occurrence, self._component), occurrence.event_namespace
        before = self._written.pop(name, None)
        if before is None:
            try:
                self._remember(name, self._cluster.create(EVENTS, self._body(name, occurrence, tally)))
                return
            except Conflict:
                try:
                    existing = self._cluster.get(EVENTS, name, namespace=namespace)
                except NotFound as error:
                    raise Conflict(str(error), after_seconds=0.1) from error  # it expired this moment
                before = str(existing["metadata"]["resourceVersion"]), int(existing.get("count") or 0)
        version, count = before
        patch = {
            # Another replica may count at the same time: a stale version is a Conflict, and tried again.
            "metadata": {"resourceVersion": version},
            "count": count + tally.count,
            "lastTimestamp": rfc3339(tally.last),
        }
        try:
            self._remember(name, self._cluster.patch(EVENTS, name, patch, namespace=namespace))
        except NotFound as error:
            raise Conflict(str(error), after_seconds=0.1) from error

    def _remember(self, name: str, written: Mapping[str, Any]) -> None:
        self._written[name] = str(written["metadata"]["resourceVersion"]), int(written.get("count") or 0)
        if len(self._written) > MAX_REMEMBERED:
            self._written.popitem(last=False)

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
