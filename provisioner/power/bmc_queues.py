"""Two queues of workers: servers whose BMC answers, and those whose BMC does not.

A dead BMC costs a worker its time-outs again and again. In a queue of their own dead BMCs can only wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from provisioner.cluster.controller import Controller, Reconcile
from provisioner.power.bmc.power_controller import BmcUnreachable

log = structlog.get_logger()

FIRST_RETRY_SECONDS: Final = 5.0
LAST_RETRY_SECONDS: Final = 60.0


class _BmcQueue(Controller):
    """A controller that tidies up when its work has ended."""

    def __init__(self, name: str, reconcile: Reconcile, *, workers: int, on_end: Callable[[], None]) -> None:
        super().__init__(name, reconcile, workers=workers)
        self._on_end = on_end

    def run(self, stop: threading.Event) -> None:
        super().run(stop)
        self._on_end()


class BmcQueues:
    """Around one reconcile function: where it raises BmcUnreachable, its key changes queues and comes back more slowly.

    `spread` puts a random factor on a number of seconds; `on_end` is called once, when both queues have ended.
    """

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        workers: int,
        unreachable_workers: int,
        spread: Callable[[float], float],
        on_end: Callable[[], None],
    ) -> None:
        self._reconcile = reconcile
        self._spread = spread
        self._lock = threading.Lock()
        self._failures: dict[str, int] = {}  # the servers in the queue of the unreachable, and how often in a row
        self._on_end = on_end
        self._ended = 0
        self._reachable = _BmcQueue("power", self._in_reachable, workers=workers, on_end=self._queue_ended)
        self._unreachable = _BmcQueue(
            "power-unreachable", self._in_unreachable, workers=unreachable_workers, on_end=self._queue_ended
        )

    @property
    def controllers(self) -> list[Controller]:
        """To be run, all of them."""
        return [self._reachable, self._unreachable]

    def add(self, key: str) -> None:
        """Work on `key` soon, in the queue where it is."""
        self._queue_of(key).queue.add(key)

    def _queue_ended(self) -> None:
        with self._lock:
            self._ended += 1
            last = self._ended == len(self.controllers)
        if last:
            self._on_end()

    def _queue_of(self, key: str) -> Controller:
        with self._lock:
            return self._unreachable if key in self._failures else self._reachable

    def _in_reachable(self, key: str) -> float | None:
        if self._queue_of(key) is self._unreachable:
            # It changed queues while it waited in this one; the other queue knows when to come back to it.
            return None
        try:
            return self._reconcile(key)
        except BmcUnreachable as error:
            self._unreachable.queue.add_after(key, self._failed(key, error))
            return None

    def _in_unreachable(self, key: str) -> float | None:
        if self._queue_of(key) is self._reachable:
            # Asked for once more while it was found alive; a BMC is spoken to by one thread at a time.
            self._reachable.queue.add(key)
            return None
        try:
            seconds = self._reconcile(key)
        except BmcUnreachable as error:
            return self._failed(key, error)
        with self._lock:
            self._failures.pop(key, None)
        if seconds is not None:
            self._reachable.queue.add_after(key, seconds)
        return None

    def _failed(self, key: str, error: BmcUnreachable) -> float:
        with self._lock:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = self._spread(retry_seconds(failures))
        log.info(
            "BMC was not reached", server=key, error=str(error), failures=failures, retry_in_seconds=round(seconds, 1)
        )
        return seconds


def retry_seconds(failures: int) -> float:
    """How long to leave a BMC alone that was not reached `failures` times in a row (from 1): 5 s to 60 s."""
    return float(min(FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 10), LAST_RETRY_SECONDS))
