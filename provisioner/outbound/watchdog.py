"""One thread that cuts connections off whose operation takes longer than it may.

A socket's own time-out does not hold over TLS: OpenSSL reads on inside one call for as long as there are records that
bring no bytes of the answer (key updates, session tickets, renegotiations, in the handshake HelloRequests), and who
sends these without end holds the thread that reads for ever. What does end such an operation is the end of its socket.
"""

from __future__ import annotations

import heapq
import itertools
import math
import os
import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from provisioner.outbound.deadline import OutboundFailed

log = structlog.get_logger()


class Watchdog:
    """Usable from several threads. Its thread starts with the first operation, and never ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.changed = threading.Condition(threading.Lock())
        """Its lock guards all that is here and in each Watch."""
        self._thread: threading.Thread | None = None
        self._due: list[tuple[float, int, Watch]] = []
        """A heap. Most operations end in time: a watch stays here from one to the next, and is looked at when due."""
        self._number = itertools.count()

    def enqueue(self, watch: Watch, due: float) -> None:
        """Look at `watch` then. The caller holds the lock. Raises: OutboundFailed if no thread can be started."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="outbound watchdog", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise OutboundFailed(f"no call is made that nothing would end: {error}") from error
            self._thread = thread
        watch.due = due
        heapq.heappush(self._due, (due, next(self._number), watch))
        if self._due[0][2] is watch:
            self.changed.notify()

    def _run(self) -> None:
        with self.changed:
            while True:
                now = self.clock()
                while self._due and self._due[0][0] <= now:
                    due, _, watch = heapq.heappop(self._due)
                    if watch.due == due:  # else it was enqueued again, for an earlier time
                        self._look_at(watch, now)
                self.changed.wait(self._due[0][0] - now if self._due else None)

    def _look_at(self, watch: Watch, now: float) -> None:
        watch.due = math.inf
        if watch.ends <= now:
            watch.cut_off()
        elif watch.ends < math.inf:
            self.enqueue(watch, watch.ends)

    def restart(self) -> None:
        """In a child process: the thread stayed with its parent."""
        self.changed, self._thread = threading.Condition(threading.Lock()), None


class Watch:
    """The operations on one connection, one at a time."""

    def __init__(self, watchdog: Watchdog | None = None) -> None:
        self._watchdog = watchdog if watchdog is not None else _WATCHDOG
        self._cut: Callable[[], None] | None = None
        self._was_cut = False
        self.ends = math.inf
        """Of the operation under way."""
        self.due = math.inf
        """When the watchdog looks here next."""

    def begin(self, seconds: float, cut: Callable[[], None]) -> None:
        """An operation begins that may take so long. `cut` ends it, from another thread, and must not wait.

        It is called before `end` returns or never: one that comes late hits neither the next operation nor another
        connection under the same number. Raises: OutboundFailed if nothing would end it.
        """
        with self._watchdog.changed:
            ends = self._watchdog.clock() + seconds
            if ends < self.due:
                self._watchdog.enqueue(self, ends)
            self.ends, self._cut = ends, cut

    def end(self) -> bool:
        """It is over: whether it, or an earlier one, was cut off."""
        with self._watchdog.changed:
            self.ends, self._cut = math.inf, None
            return self._was_cut

    def cut_off(self) -> None:
        """For the watchdog, which holds the lock."""
        cut, self.ends, self._cut, self._was_cut = self._cut, math.inf, None, True
        try:
            if cut is not None:
                cut()
        except Exception as error:
            log.info("connection had ended before it was cut off", error=str(error))


_WATCHDOG: Final = Watchdog()

os.register_at_fork(
    before=lambda: _WATCHDOG.changed.acquire(),
    after_in_parent=lambda: _WATCHDOG.changed.release(),
    after_in_child=_WATCHDOG.restart,
)
