"""Events that `kubectl describe` shows: recorded in the background, the same one counted instead of repeated.

An Event's name is computed from what it says, so that a program that was started again, or a second replica, counts on
where the first one stopped. It is created without a look first; where it exists, it is counted on, by what this process
wrote last or, if it did not, by one GET. Events are a courtesy: they come slowly where thousands happen at once, and if
the API server does not take them, or too many wait, they are dropped, which is counted and logged, and nobody waits.
What thousands of objects say at once does not hide what one says: Warnings go first and are dropped last, and reasons
take turns, the one that most wait with losing first.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

import structlog

from provisioner.api.machinery.errors import Conflict, Forbidden, NotFound, ProvisionerError, Retryable
from provisioner.api.machinery.meta import rfc3339
from provisioner.cluster.client import Cluster
from provisioner.cluster.patience import NotYetAllowed
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
MAX_REMEMBERED: Final = 4096
BURST: Final = 200
PER_SECOND: Final = 20.0
"""Events written at once, and then each second: a fleet that is registered is no reason to keep its orders waiting."""
DROPS_TOLD_SECONDS: Final = 300.0
"""Of drops the first is logged at once, those after it together, so often."""
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
    writer: Cluster = field(repr=False)
    """By whose rights it is written; it is not part of what is said."""

    @property
    def event_namespace(self) -> str:
        return self.namespace or CLUSTER_SCOPED_NAMESPACE


@dataclass
class _Tally:
    """How often since it was last written, and when."""

    first: datetime
    last: datetime
    count: int = 0


class _Pending:
    """What waits to be written, at most `limit`. Not thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tallies: dict[_Occurrence, _Tally] = {}
        self._queues: OrderedDict[tuple[EventType, str], deque[_Occurrence]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tallies)

    def find(self, occurrence: _Occurrence) -> _Tally | None:
        return self._tallies.get(occurrence)

    def add(self, occurrence: _Occurrence, tally: _Tally) -> _Occurrence | None:
        """Take it in. Returns: what was dropped for it, or itself, if it was; else None."""
        key, dropped = (occurrence.type, occurrence.reason), None
        if len(self._tallies) >= self._limit:
            longest = max(self._queues, key=lambda each: (each[0] != "Warning", len(self._queues[each]), each == key))
            if longest == key or (occurrence.type != "Warning" and longest[0] == "Warning"):
                return occurrence
            dropped = self._queues[longest].pop()
            del self._tallies[dropped]
            if not self._queues[longest]:
                del self._queues[longest]
        self._tallies[occurrence] = tally
        self._queues.setdefault(key, deque()).append(occurrence)
        return dropped

    def pop(self) -> tuple[_Occurrence, _Tally]:
        """The next to be written."""
        key = next((each for each in self._queues if each[0] == "Warning"), next(iter(self._queues)))
        occurrence = self._queues[key].popleft()
        if self._queues[key]:
            self._queues.move_to_end(key)
        else:
            del self._queues[key]
        return occurrence, self._tallies.pop(occurrence)


class EventRecorder:
    """Records events as `component`. The first `record` starts its thread. `dropped` is told of each that is lost."""

    def __init__(
        self,
        cluster: Cluster,
        component: str,
        *,
        max_pending: int = MAX_PENDING,
        dropped: Callable[[EventType], None] = lambda _: None,
    ) -> None:
        self._cluster = cluster.with_timeout(REQUEST_SECONDS)
        self._component = component
        self._tell_drop = dropped
        self._changed = threading.Condition()
        self._pending = _Pending(max_pending)
        self._written: OrderedDict[str, tuple[str, int]] = OrderedDict()  # resourceVersion and count of ours, by name
        self._allowed, self._allowed_at = float(BURST), time.monotonic()
        self._drops, self._told_at = 0, -DROPS_TOLD_SECONDS
        self._thread: threading.Thread | None = None
        self._writing = False
        self._is_patient = True
        self._closed = threading.Event()

    def record(self, regarding: Mapping[str, Any], type: EventType, reason: str, message: str) -> None:  # noqa: A002
        """Tell that something happened to the object `regarding` (apiVersion, kind, metadata). Never raises."""
        self.record_by(self._cluster, regarding, type, reason, message)

    def written_by(self, cluster: Cluster) -> Events:
        """Where a part of the process records that has rights of its own: one pace and one queue for all of them."""
        return _Part(self, cluster.with_timeout(REQUEST_SECONDS))

    def record_by(
        self,
        writer: Cluster,
        regarding: Mapping[str, Any],
        type: EventType,  # noqa: A002
        reason: str,
        message: str,
    ) -> None:
        """`record`, by the rights of `writer`."""
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
                writer=writer,
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
            now = datetime.now(UTC)
            tally = self._pending.find(occurrence)
            if tally is None:
                tally = _Tally(first=now, last=now)
                lost = self._pending.add(occurrence, tally)
                if lost is not None:
                    self._drop(lost, "too many wait")
                if lost is occurrence:
                    return
            tally.count += 1
            tally.last = now
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"events-{self._component}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def _drop(self, occurrence: _Occurrence, why: str) -> None:
        self._tell_drop(occurrence.type)
        self._drops += 1
        now = time.monotonic()
        if now - self._told_at >= DROPS_TOLD_SECONDS:
            log.warning("events dropped", count=self._drops, reason=occurrence.reason, name=occurrence.name, error=why)
            self._drops, self._told_at = 0, now

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
                occurrence, tally = self._pending.pop()
                self._writing = True
            try:
                self._pace()
                self._write_patiently(occurrence, tally)
            except ProvisionerError as error:
                with self._changed:
                    self._drop(occurrence, str(error))
            except Exception:
                log.exception("event dropped", reason=occurrence.reason, name=occurrence.name)
                self._tell_drop(occurrence.type)

    def _write_patiently(self, occurrence: _Occurrence, tally: _Tally) -> None:
        """An API server that knows no rights yet is waited for, for as long as the client is patient; once, not with
        each Event."""
        failures = 0
        while True:
            try:
                self._write(occurrence, tally)
                self._is_patient = True
                return
            except Forbidden:
                self._is_patient = False
                raise
            except Retryable as error:
                failures += not (self._is_patient and isinstance(error, NotYetAllowed))
                if failures >= ATTEMPTS or self._closed.is_set():
                    raise
                self._closed.wait(min(error.after_seconds, REQUEST_SECONDS))

    def _write(self, occurrence: _Occurrence, tally: _Tally) -> None:
        """Create it, or count on the one that says it already. Raises: Conflict if that changed meanwhile."""
        name, namespace = event_name(occurrence.name, occurrence, self._component), occurrence.event_namespace
        before = self._written.pop(name, None)
        if before is None:
            try:
                self._remember(name, occurrence.writer.create(EVENTS, self._body(name, occurrence, tally)))
                return
            except Conflict:
                try:
                    existing = occurrence.writer.get(EVENTS, name, namespace=namespace)
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
            self._remember(name, occurrence.writer.patch(EVENTS, name, patch, namespace=namespace))
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
            "reportingInstance": self._component,
        }


@dataclass(frozen=True)
class _Part:
    """`Events` of one part of the process."""

    recorder: EventRecorder
    writer: Cluster

    def record(self, regarding: Mapping[str, Any], type: EventType, reason: str, message: str) -> None:  # noqa: A002
        self.recorder.record_by(self.writer, regarding, type, reason, message)


def event_name(name: str, said: object, component: str) -> str:
    """`<object>.<digest of what is said and by whom>`: the same words about the same object have the same name."""
    digest = hashlib.sha256(f"{component}\0{said!r}".encode()).hexdigest()
    return f"{name[:230].rstrip('.-')}.{digest[:16]}"
