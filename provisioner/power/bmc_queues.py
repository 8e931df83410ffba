"""Four queues of workers, and the way of a server through them (see `standing`).

A dead or dripping BMC costs a worker its time-outs again and again. In a queue of their own they can only wait for each
other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import structlog

from provisioner.cluster.controller import Controller, Reconcile
from provisioner.power.bmc.power_controller import BmcUnreachable
from provisioner.power.standing import (
    LOOK_SECONDS,
    BmcQueueState,
    QueueName,
    failed,
    overdue,
    rest_seconds,
    retry_seconds,
    visited,
)
from provisioner.power.visit import LookOverdue, Visit

log = structlog.get_logger()

NAMES: Final[Mapping[QueueName, str]] = {
    "New": "power-new",
    "Prompt": "power",
    "Slow": "power-slow",
    "Unreachable": "power-unreachable",
}


ReconcileVisit = Callable[[str, Visit], float | None]
"""Brings a server closer to what is wanted, as `Reconcile` does, and keeps the account of the visit.

Raises: LookOverdue; BmcUnreachable, after it was recorded.
"""


class _BmcQueue(Controller):
    """A controller that tidies up when its work has ended."""

    def __init__(self, name: str, reconcile: Reconcile, *, workers: int, on_end: Callable[[], None]) -> None:
        super().__init__(name, reconcile, workers=workers)
        self._on_end = on_end

    def run(self, stop: threading.Event) -> None:
        super().run(stop)
        self._on_end()


class BmcQueues:
    """Around one reconcile function.

    `workers`: of each queue. `spread` puts a random factor on a number of seconds; `on_end` is called once, when all
    queues have ended; `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        reconcile: ReconcileVisit,
        *,
        workers: Mapping[QueueName, int],
        spread: Callable[[float], float],
        on_end: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconcile = reconcile
        self._spread = spread
        self._clock = clock
        self._lock = threading.Lock()
        self._standings: dict[str, BmcQueueState] = {}
        self._on_end = on_end
        self._ended = 0
        self._queues: dict[QueueName, Controller] = {
            name: _BmcQueue(NAMES[name], partial(self._visit, name), workers=count, on_end=self._queue_ended)
            for name, count in workers.items()
        }

    @property
    def controllers(self) -> list[Controller]:
        """To be run, all of them."""
        return list(self._queues.values())

    def add(self, key: str, first: QueueName = "New") -> None:
        """Work on `key` soon, in the queue where it is; in queue `first`, if it is in none."""
        with self._lock:
            standing = self._standings.setdefault(key, BmcQueueState(first, at=self._clock()))
        self._queues[standing.queue].queue.add(key)

    def _queue_ended(self) -> None:
        with self._lock:
            self._ended += 1
            last = self._ended == len(self._queues)
        if last:
            self._on_end()

    def _visit(self, name: QueueName, key: str) -> float | None:
        with self._lock:
            before = self._standings.setdefault(key, BmcQueueState(at=self._clock()))
        if before.queue != name:
            # It changed queues while it waited in this one, or was asked for once more while it was looked at. A BMC is
            # spoken to by one thread at a time; that of the unreachable knows when to come back to it.
            if before.queue != "Unreachable":
                self._queues[before.queue].queue.add(key)
            return None
        visit = Visit(look_seconds=LOOK_SECONDS.get(name), is_slow=name == "Slow", clock=self._clock)
        try:
            seconds = self._reconcile(key, visit)
        except LookOverdue:
            return self._move(key, name, overdue(before, visit.bmc_seconds, self._clock()), 0.0)
        except BmcUnreachable as error:
            after = failed(before, visit.bmc_seconds, self._clock())
            wait = self._spread(retry_seconds(after.failures))
            log.info(
                "BMC was not reached",
                server=key,
                error=str(error),
                failures=after.failures,
                retry_in_seconds=round(wait, 1),
            )
            return self._move(key, name, after, wait)
        if seconds is None:
            with self._lock:
                self._standings.pop(key, None)
            return None
        after = visited(before, visit.bmc_seconds, self._clock(), answered=visit.answered)
        return self._move(key, name, after, max(seconds, rest_seconds(name, visit.bmc_seconds)))

    def _move(self, key: str, name: QueueName, after: BmcQueueState, seconds: float) -> float | None:
        """Have it come back in `seconds`. Returns them, if that is in queue `name`."""
        with self._lock:
            self._standings[key] = after
        if after.queue == name:
            return seconds
        if after.queue == "Slow":
            log.info("BMC answers slowly", server=key, budget_seconds=round(after.budget_seconds, 1))
        self._queues[after.queue].queue.add_after(key, seconds)
        return None
