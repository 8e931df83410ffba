"""A queue of keys after client-go: a key that is added twice is worked on once; a key that is added while it is worked
on is worked on once more afterwards, never by two workers at a time; a key that failed comes back later and later.

What is added before anybody works on it is a backlog: everything that a cache was filled with. What changes meanwhile
goes before it, so that the first act of a new leader does not wait until a whole fleet was looked at. What somebody
waits for may go before what merely follows from it. Neither keeps the rest waiting for ever."""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Protocol

from provisioner.api.machinery.backoff import backoff_seconds

FIRST_RETRY_SECONDS: Final = 0.2
LAST_RETRY_SECONDS: Final = 300.0
BACKLOG_SHARE: Final = 8
"""Of so many keys one is of the backlog, however much changes; and one of the others, however much goes first."""


class QueueObserver(Protocol):
    """Is told what becomes of keys, with the queue's lock held: it must be quick, and ask the queue nothing."""

    def taken(self, waited_seconds: float) -> None:
        """A worker took a key that could have been taken so long ago."""

    def retried(self) -> None:
        """A key failed, and comes back."""


class WorkQueue:
    """Usable from several threads. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._jitter = jitter
        self._changed = threading.Condition()
        self._first: deque[str] = deque()
        self._ready: deque[str] = deque()
        self._backlog: OrderedDict[str, None] = OrderedDict()
        self._started = False
        self._taken = 0
        self._dirty: set[str] = set()  # to be worked on: in one of those three, or in _working and to come again
        self._urgent: set[str] = set()  # goes into _first when it is next added
        self._working: set[str] = set()
        self._due: dict[str, float] = {}
        self._waiting: list[tuple[float, str]] = []  # heap; an entry is stale if _due says another time
        self._watched: float | None = None  # the moment at which one of the idle workers wakes up by itself
        self._failures: dict[str, int] = {}
        self._shut_down = False
        self._since: dict[str, float] = {}  # keys that wait for a worker, and since when; the oldest is the first
        self._taken_at = clock()
        self.observer: QueueObserver | None = None

    def add(self, key: str) -> None:
        """Work on `key` soon."""
        with self._changed:
            self._add(key)

    def hurry(self, key: str) -> None:
        """Work on `key` before the rest of the backlog, if it is in it."""
        with self._changed:
            self._hurry(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Work on `key` in `seconds`; if it already waits for an earlier moment, that one stays."""
        with self._changed:
            if seconds <= 0:
                self._add(key)
                return
            due = self._clock() + seconds
            if self._shut_down or self._due.get(key, due + 1) <= due:
                return
            self._due[key] = due
            heapq.heappush(self._waiting, (due, key))
            self._ask_for_a_watch()

    def add_first_after(self, key: str, seconds: float) -> None:
        """The same, and then before all that is not to be first."""
        with self._changed:
            self._urgent.add(key)
        self.add_after(key, seconds)

    def retry(self, key: str, at_least_seconds: float = 0.0) -> float:
        """Work on `key` again after its backoff, and not before `at_least_seconds`; returns the seconds."""
        with self._changed:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if self.observer is not None:
                self.observer.retried()
        seconds = backoff_seconds(failures, first=FIRST_RETRY_SECONDS, cap=LAST_RETRY_SECONDS, jitter=self._jitter)
        seconds = max(seconds, at_least_seconds)
        self.add_after(key, seconds)
        return seconds

    def forget(self, key: str) -> None:
        """`key` succeeded: its next failure is its first."""
        with self._changed:
            self._failures.pop(key, None)

    def get(self, timeout: float | None = None) -> str | None:
        """The next key, to be handed back by `done`; None after `timeout` seconds or when the queue is shut down."""
        deadline = None if timeout is None else self._clock() + timeout
        with self._changed:
            if not self._started:  # what waited while nobody was to work does not stand
                self._started, self._taken_at = True, self._clock()
            while not self._shut_down:
                now = self._clock()
                self._promote(now)
                if self._first or self._ready or self._backlog:
                    key = self._take()
                    self._dirty.discard(key)
                    self._working.add(key)
                    self._tell_taken(key, now)
                    self._ask_for_a_watch()
                    return key
                if deadline is not None and now >= deadline:
                    self._ask_for_a_watch()
                    return None
                self._wait(now, deadline)
            return None

    def done(self, key: str) -> None:
        """The work on `key` is over; if it was added meanwhile, it is next in line again."""
        with self._changed:
            self._working.discard(key)
            if key in self._dirty:
                self._line_up(key)
                self._changed.notify()

    def shut_down(self) -> None:
        """Nothing is taken in or given out any more; waiting workers get None."""
        with self._changed:
            self._shut_down = True
            self._changed.notify_all()

    @property
    def is_shut_down(self) -> bool:
        with self._changed:
            return self._shut_down

    def __len__(self) -> int:
        """Keys that wait for a worker now."""
        with self._changed:
            self._promote(self._clock())
            return len(self._first) + len(self._ready) + len(self._backlog)

    def oldest_seconds(self) -> float:
        """How long the key has waited that has waited longest for a worker; 0 if none does."""
        with self._changed:
            since = next(iter(self._since.values()), None)
            return 0.0 if since is None else max(0.0, self._clock() - since)

    def standing_seconds(self) -> float:
        """For how long keys have waited of which no worker took any; 0 if none waits."""
        with self._changed:
            since = next(iter(self._since.values()), None)
            return 0.0 if since is None else max(0.0, self._clock() - max(since, self._taken_at))

    def _tell_taken(self, key: str, now: float) -> None:
        since, self._taken_at = self._since.pop(key, now), now
        if self.observer is not None:
            self.observer.taken(max(0.0, now - since))

    def _add(self, key: str) -> None:
        if self._shut_down:
            return
        if key in self._dirty:
            if self._started:
                self._hurry(key)
            if key in self._urgent and key in self._ready:
                self._ready.remove(key)
                self._line_up(key)
            return
        self._dirty.add(key)
        if key in self._working:
            return
        if self._started:
            self._line_up(key)
        else:
            self._backlog[key] = None
            self._since.setdefault(key, self._clock())
        self._changed.notify()

    def _line_up(self, key: str) -> None:
        (self._first if key in self._urgent else self._ready).append(key)
        self._since.setdefault(key, self._clock())
        self._urgent.discard(key)

    def _hurry(self, key: str) -> None:
        if key in self._backlog:
            del self._backlog[key]
            self._ready.append(key)

    def _take(self) -> str:
        self._taken += 1
        share = BACKLOG_SHARE
        if self._first:
            if self._taken % share or not (self._ready or self._backlog):
                return self._first.popleft()
            share *= BACKLOG_SHARE
        if self._backlog and (not self._ready or self._taken % share == 0):
            return self._backlog.popitem(last=False)[0]
        return self._ready.popleft()

    def _wait(self, now: float, deadline: float | None) -> None:
        """For a key. One idle worker watches the earliest moment; the others sleep until they are notified, so that
        a key which is put off wakes nobody, or one."""
        mine = self._waiting[0][0] if self._must_be_watched() else None
        moments = [moment for moment in (mine, deadline) if moment is not None]
        if mine is not None:
            self._watched = mine
        self._changed.wait(min(moments) - now if moments else None)
        if mine is not None and self._watched == mine:
            self._watched = None

    def _must_be_watched(self) -> bool:
        return bool(self._waiting) and (self._watched is None or self._waiting[0][0] < self._watched)

    def _ask_for_a_watch(self) -> None:
        if self._must_be_watched():
            self._changed.notify()

    def _promote(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            due, key = heapq.heappop(self._waiting)
            if self._due.get(key) == due:
                del self._due[key]
                self._add(key)
