"""The loop around a reconcile function."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

import structlog

from provisioner.api.machinery.errors import Conflict, NeedsHuman, Retryable
from provisioner.cluster.work_queue import QueueObserver, WorkQueue
from provisioner.outbound.bulkhead import NoRoom
from provisioner.outbound.lanes import NeedsLane

log = structlog.get_logger()

Reconcile = Callable[[str], float | None]
"""Brings the object of that key closer to what is wanted; returns after how many seconds to look again, or None."""


class ReconcileObserver(QueueObserver, Protocol):
    """Is told what becomes of keys, and of each reconcile."""

    def reconciled(self, seconds: float, error: str | None) -> None:
        """One has ended. error: Conflict, Retryable, NeedsHuman, or Failed for what nobody foresaw; None if none."""


RESYNC_SECONDS: Final = 3600.0
"""Every object is looked at so often, should a change of it ever have been missed: at 10,000 servers three a second."""

NEEDS_HUMAN_RETRY_SECONDS: Final = 5.0
STOP_SECONDS: Final = 30.0


def requeue_after(sooner_seconds: float | None, rng: random.Random) -> float:
    """After how many seconds to reconcile again: `sooner_seconds`, if any, and no later than a resync.

    A resync is put off by up to a fifth, so that not all objects are looked at in the same moment.
    """
    resync = RESYNC_SECONDS * (1 + 0.2 * rng.random())
    return min(resync, sooner_seconds) if sooner_seconds is not None else resync


class Settling:
    """Puts off what is only words, so that what changes in quick succession is written once. `clock`: monotonic."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._since: dict[str, float] = {}

    def rest(self, key: str) -> float:
        """Seconds until it is worth a write, counted from the first change that was not written; 0 if it is."""
        rest = self._since.setdefault(key, self._clock()) + self._seconds - self._clock()
        if rest > 0:
            return rest
        self.is_written(key)
        return 0.0

    def is_written(self, key: str) -> None:
        """What is said of `key` is written, or as it was before."""
        self._since.pop(key, None)


class Controller:
    """Works through `queue` until it is stopped. It runs once: a new leadership builds a new controller.

    What `reconcile` raises: Retryable, the key comes back after its backoff and not before `after_seconds`;
    NeedsHuman, it is logged and comes back more slowly (a person may have acted on something that is not watched);
    NeedsLane, it is reconciled anew in the thread of the backend that it waits for, and by nobody else meanwhile;
    anything else, it is logged with its traceback and comes back after its backoff.
    """

    def __init__(self, name: str, reconcile: Reconcile, *, workers: int = 1, queue: WorkQueue | None = None) -> None:
        self.name = name
        self.queue = WorkQueue() if queue is None else queue
        self._reconcile = reconcile
        self._workers = workers
        self._changed = threading.Condition()
        self._in_lanes = 0
        self._threads: tuple[threading.Thread, ...] = ()
        self._under_way: dict[int, float] = {}  # thread → since when it reconciles
        self._observer: ReconcileObserver | None = None
        self._log = log.bind(controller=name)

    def observe(self, observer: ReconcileObserver) -> None:
        """Tell `observer` from now on."""
        self._observer = self.queue.observer = observer

    def dead_workers(self) -> int:
        """Workers that have ended before they were to: what nobody foresaw and no reconcile may raise."""
        with self._changed:
            threads = self._threads
        return 0 if self.queue.is_shut_down else sum(not thread.is_alive() for thread in threads)

    def longest_seconds(self) -> float:
        """For how long the reconcile has lasted that is under way longest, in whichever thread; 0 if there is none."""
        with self._changed:
            return max(0.0, time.monotonic() - min(self._under_way.values())) if self._under_way else 0.0

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set and the reconciles that were under way have ended (30 s at most)."""
        threads = tuple(
            threading.Thread(target=self._work, name=f"{self.name}-{number}", daemon=True)
            for number in range(self._workers)
        )
        for thread in threads:
            thread.start()
        with self._changed:
            self._threads = threads
        stop.wait()
        self.queue.shut_down()
        deadline = time.monotonic() + STOP_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._log.error("reconcile did not end", thread=thread.name, waited_seconds=STOP_SECONDS)
        with self._changed:
            if not self._changed.wait_for(lambda: not self._in_lanes, max(0.0, deadline - time.monotonic())):
                self._log.error("reconciles in lanes did not end", count=self._in_lanes, waited_seconds=STOP_SECONDS)

    def _work(self) -> None:
        while (key := self.queue.get()) is not None:
            self._take(key)

    def _take(self, key: str) -> None:
        """Reconcile `key` and hand it back to the queue, or let its lane do both."""
        try:
            self._reconcile_one(key)
        except NeedsLane as needed:
            if self._submit(key, needed):
                return
        except BaseException:
            self.queue.done(key)
            raise
        self.queue.done(key)

    def _submit(self, key: str, needed: NeedsLane) -> bool:
        try:
            needed.submit(lambda: self._take_in_lane(key))
        except NoRoom as error:
            wait = self.queue.retry(key, error.after_seconds)
            self._log.warning("reconcile put off", key=key, error=str(error), retry_in_seconds=round(wait, 2))
            return False
        return True

    def _take_in_lane(self, key: str) -> None:
        with self._changed:
            if self.queue.is_shut_down:
                return
            self._in_lanes += 1
        try:
            self._take(key)
        finally:
            with self._changed:
                self._in_lanes -= 1
                self._changed.notify_all()

    def _reconcile_one(self, key: str) -> None:
        with self._timed() as failed:
            try:
                again_in_seconds = self._reconcile(key)
            except NeedsLane:
                raise
            except Conflict as error:
                failed("Conflict")
                wait = self.queue.retry(key, error.after_seconds)
                self._log.debug(
                    "reconcile met another writer", key=key, error=str(error), retry_in_seconds=round(wait, 2)
                )
            except Retryable as error:
                failed("Retryable")
                wait = self.queue.retry(key, error.after_seconds)
                self._log.info("reconcile put off", key=key, error=str(error), retry_in_seconds=round(wait, 2))
            except NeedsHuman as error:
                failed("NeedsHuman")
                wait = self.queue.retry(key, NEEDS_HUMAN_RETRY_SECONDS)
                self._log.warning(
                    "reconcile needs a person", key=key, error=str(error), retry_in_seconds=round(wait, 2)
                )
            except Exception:
                failed("Failed")
                wait = self.queue.retry(key)
                self._log.exception("reconcile failed", key=key, retry_in_seconds=round(wait, 2))
            else:
                self.queue.forget(key)
                if again_in_seconds is not None:
                    self.queue.add_after(key, again_in_seconds)

    @contextmanager
    def _timed(self) -> Iterator[Callable[[str], None]]:
        """Measure what is done inside. It is given what to call with the kind of its error; what only learns that it
        has to begin anew in a lane is no reconcile."""
        errors: list[str] = []
        me, began = threading.get_ident(), time.monotonic()
        with self._changed:
            self._under_way[me] = began
        is_over = True
        try:
            yield errors.append
        except NeedsLane:
            is_over = False
            raise
        finally:
            with self._changed:
                self._under_way.pop(me, None)
            if is_over and self._observer is not None:
                self._observer.reconciled(time.monotonic() - began, errors[0] if errors else None)
