"""A local copy of a collection that follows the API server, and tells its subscribers what changed.

List, then watch from there; a watch that ends is taken up where it was; what the server forgot (410) or repeated
failures lead to a new list, whose differences to the copy are told like any other change. What can go wrong on the way:

    connection refused, 5xx, 429      wait (exponential, jittered, Retry-After), go on
    410 Gone                          list again, tell the differences
    a watch that died silently        TCP keepalive for a dead host; for a peer that lives but forwards nothing, the
                                      server was told to end the watch after `watch_seconds`: later is dead
    a handler that raises             logged; the copy and the other handlers go on
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final

import structlog

from provisioner.api.machinery.backoff import Backoff
from provisioner.api.machinery.errors import ProvisionerError, Retryable
from provisioner.cluster.changes import WatchEvent, read_changes
from provisioner.cluster.client import Cluster
from provisioner.cluster.failures import Expired
from provisioner.cluster.resources import ResourceType
from provisioner.cluster.source import Index, KeysOf, Object, Watcher
from provisioner.cluster.transport import Stream
from provisioner.cluster.trim import Trim

# Strings that many objects of a copy have, once in memory.

SHARED_CHARACTERS: Final = 128
"""Longer strings are rarely the same in two objects."""
REMEMBERED: Final = 2048


class SharedStrings:
    """Gives JSON the strings that others had before it. For one thread.

    Each page of a list and each line of a watch brings its own: of a Server in a copy they are half of the memory. Most
    strings are never seen again (identifiers, times), so only the last ones are remembered, and those for longer that
    are met again and again; `sys.intern` would keep a place for each, some 40 bytes, as long as it lives.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._young: dict[str, str] = {}
        self._old: dict[str, str] = {}

    def share(self, value: Any) -> Any:
        """A copy of JSON with shared keys and strings."""
        if isinstance(value, dict):
            return {sys.intern(key): self.share(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.share(item) for item in value]
        return self._string(value) if isinstance(value, str) and len(value) <= SHARED_CHARACTERS else value

    def _string(self, value: str) -> str:
        found = self._young.get(value)
        if found is not None:
            return found
        if len(self._young) >= self._remembered:
            self._young, self._old = {}, self._young
        found = self._old.get(value, value)
        self._young[found] = found
        return found


log = structlog.get_logger()

GRACE_SECONDS: Final = 5.0
FAILED_WATCHES_BEFORE_LIST: Final = 3
SHORT_WATCH_SECONDS: Final = 5.0


class Informer:
    """The copy of one collection. Objects that it gives are shared: read them, never change them.

    Keys are `name`, or `namespace/name` where the kind has namespaces. Handlers run in the informer's thread, one
    change after the other: put a key into a queue and return.
    """

    def __init__(
        self,
        cluster: Cluster,
        type: ResourceType,  # noqa: A002
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        trim: Trim | None = None,
        shares_strings: bool = True,
        watch_seconds: int = 60,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._type = type
        self._where: dict[str, str | None] = {
            "namespace": namespace,
            "label_selector": label_selector,
            "field_selector": field_selector,
        }
        self._trim = trim
        self._strings = SharedStrings() if shares_strings else None
        self._watch_seconds = watch_seconds
        self._clock = clock
        self._jitter = jitter
        self._objects: dict[str, Object] = {}
        self._indices: list[Index] = []
        self._handlers: list[Watcher] = []
        self._store_lock = threading.Lock()
        self._delivery_lock = threading.RLock()  # one change is told whole before the next, also to late subscribers
        self._synced = threading.Event()
        self._position: str | None = None  # the moment up to which the copy is complete; None: list first
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._turned = self._heard = time.monotonic()
        self.heard_time: float | None = None
        """Seconds since 1970 when the API server last said anything of the kind; None if it never did."""
        self.lists = 0
        self.failures = 0
        self._log = log.bind(kind=type.kind)

    @property
    def kind(self) -> str:
        return self._type.kind

    @property
    def is_dead(self) -> bool:
        """Whether the thread that follows has ended: it never does by itself."""
        return self._thread is not None and not self._thread.is_alive()

    def turned_seconds(self) -> float:
        """How long ago it last began something anew, with or without success: long ago, and it hangs."""
        return time.monotonic() - self._turned

    def heard_seconds(self) -> float:
        """How long ago the API server last said anything: how old the copy is at most."""
        return time.monotonic() - self._heard

    def __len__(self) -> int:
        with self._store_lock:
            return len(self._objects)

    @property
    def has_synced(self) -> bool:
        """Whether the copy has been complete once. It stays true while the API server is away."""
        return self._synced.is_set()

    def wait_for_sync(self, timeout_seconds: float) -> bool:
        """Wait until the copy is complete; whether it is."""
        return self._synced.wait(timeout_seconds)

    def get(self, name: str) -> Object | None:
        """By key."""
        with self._store_lock:
            return self._objects.get(name)

    def items(self) -> list[Object]:
        with self._store_lock:
            return list(self._objects.values())

    def index(self, keys_of: KeysOf) -> Index:
        """An index over the copy, never behind it: a handler that is told of a change finds it there.

        `keys_of` must not raise; an object of which it does is left out, and logged.
        """

        def safe(object_: Object) -> Iterable[Hashable]:
            try:
                return keys_of(object_)
            except Exception:
                self._log.exception("object not indexed", key=self._key(object_))
                return ()

        index = Index(safe)
        with self._delivery_lock, self._store_lock:
            for key, object_ in self._objects.items():
                index.put(key, object_)
            self._indices.append(index)
        return index

    def subscribe(self, handler: Watcher) -> None:
        """Tell `handler` of every change from now on, after telling it of everything that is there."""
        with self._delivery_lock:
            self._handlers.append(handler)
            for key, object_ in list(self._objects.items()):
                self._tell(handler, key, None, object_)

    def start(self, stop: threading.Event) -> None:
        """Follow the API server in the background until `stop` is set."""
        name = f"informer-{self._type.plural}"
        self._turned = self._heard = time.monotonic()
        thread = threading.Thread(target=self._follow, args=(stop,), name=name, daemon=True)
        thread.start()
        self._thread = thread  # not before it lives: `is_dead` is asked from other threads
        threading.Thread(target=self._abort_on, args=(stop,), name=f"{name}-stop", daemon=True).start()

    def _follow(self, stop: threading.Event) -> None:
        backoff = Backoff(first=0.2, cap=30.0, jitter=self._jitter)
        while not stop.is_set():
            self._turned = time.monotonic()
            try:
                if self._position is None:
                    self._position = self._list()
                self._watch(self._position, backoff, stop)
            except Expired as error:
                self._log.info("watch expired", error=str(error))
                self._position = None
                # The first time at once; but a server that always says so must not be asked in a loop.
                wait = backoff.failed() if backoff.failures else 0.0
                backoff.failures = max(backoff.failures, 1)
                stop.wait(wait)
            except ProvisionerError as error:
                wait = max(backoff.failed(), error.after_seconds if isinstance(error, Retryable) else 0.0)
                if backoff.failures > FAILED_WATCHES_BEFORE_LIST:
                    self._position = None
                self.failures += 1
                if not stop.is_set():
                    self._log.warning("watch failed", error=str(error), retry_in_seconds=round(wait, 2))
                stop.wait(wait)
            except Exception:
                self._log.exception("informer failed")
                self.failures += 1
                self._position = None
                stop.wait(backoff.failed())

    def _list(self) -> str:
        """Make the copy equal to the collection; returns the moment that it shows."""
        listed = self._cluster.list(self._type, trim=self._keep, **self._where)
        # In the order in which they were written, as a watch tells them: who finds one here finds all before it.
        ordered = sorted(listed.items, key=lambda item: int(item["metadata"]["resourceVersion"]))
        now = {self._key(item): item for item in ordered}
        with self._delivery_lock:
            for key in [key for key in self._objects if key not in now]:
                self._put(key, None)
            for key, object_ in now.items():
                self._put(key, object_)
        self.lists += 1
        self._hear()
        if not self._synced.is_set():
            self._synced.set()
            self._log.debug("informer synced", objects=len(now))
        return listed.resource_version

    def _watch(self, position: str, backoff: Backoff, stop: threading.Event) -> None:
        """One watch from `position`; moves `_position` along with what it takes in."""
        seconds = max(1, round(self._watch_seconds * (0.75 + self._jitter() / 4)))
        began = self._clock()
        with self._cluster.watch(
            self._type,
            position,
            timeout_seconds=seconds,
            silence_seconds=seconds + GRACE_SECONDS,
            **self._where,
        ) as stream:
            self._stream = stream
            self._hear()
            try:
                if stop.is_set():
                    return
                ends = began + seconds + GRACE_SECONDS
                for change in read_changes(stream, deadline=ends, clock=self._clock, keep=self._keep):
                    self._take(change)
                    self._position = change.resource_version
                    backoff.succeeded()
            finally:
                self._stream = None
        self._hear()
        lasted = self._clock() - began
        if lasted < min(SHORT_WATCH_SECONDS, seconds / 2) and self._position == position:
            raise Retryable(f"WATCH {self._type} ended after {lasted:.1f} s without a change")
        backoff.succeeded()

    def _hear(self) -> None:
        self._heard = self._turned = time.monotonic()
        self.heard_time = time.time()

    def _take(self, change: WatchEvent) -> None:
        self._hear()
        if change.type == "BOOKMARK":
            return
        key = f"{change.namespace}/{change.name}" if self._type.namespaced else change.name
        with self._delivery_lock:
            self._put(key, change.object)

    def _keep(self, object_: Object) -> Object | None:
        """What the copy keeps of an object that was read; of one that it has as it is, that one: a new list of all that
        did not change takes no memory beside the old."""
        known = self._objects.get(self._key(object_))
        if known is not None and known["metadata"]["resourceVersion"] == object_["metadata"]["resourceVersion"]:
            return known
        kept = self._trim(object_) if self._trim is not None else object_
        shared: Object | None = self._strings.share(kept) if kept is not None and self._strings is not None else kept
        return shared

    def _put(self, key: str, new: Object | None) -> None:
        old = self._objects.get(key)
        if old is None and new is None:
            return
        if old and new and old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
            return
        with self._store_lock:
            if new is None:
                del self._objects[key]
            else:
                self._objects[key] = new
            for index in self._indices:
                index.put(key, new)
        for handler in list(self._handlers):
            self._tell(handler, key, old, new)

    def _tell(self, handler: Watcher, key: str, old: Object | None, new: Object | None) -> None:
        try:
            handler(key, old, new)
        except Exception:
            self._log.exception("handler failed", key=key, handler=getattr(handler, "__qualname__", repr(handler)))

    def _key(self, object_: Object) -> str:
        metadata = object_["metadata"]
        return f"{metadata['namespace']}/{metadata['name']}" if self._type.namespaced else str(metadata["name"])

    def _abort_on(self, stop: threading.Event) -> None:
        stop.wait()
        stream = self._stream
        if stream is not None:
            stream.abort()
