"""Work that waits for a backend, in a thread of that backend's own: workers that serve all never wait for one.

Whoever finds, in the middle of its work, that it has to wait for a backend calls `enter`, which raises NeedsLane
outside of the lane; the work is then begun anew inside it (`cluster.controller` does that).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import structlog

from provisioner.outbound.bulkhead import NoRoom

log = structlog.get_logger()

MAX_THREADS: Final = 512

Work = Callable[[], None]


class NeedsLane(Exception):
    """Not a failure: what was begun has to be begun anew in another thread, by `submit`."""

    def __init__(self, lanes: Lanes, key: str) -> None:
        super().__init__(f"waits for {key}, in a thread of its own")
        self._lanes, self._key = lanes, key

    def submit(self, work: Work) -> None:
        """Let `work` be done in the lane, after what is there already. Raises: NoRoom."""
        self._lanes.submit(self._key, work)


class Lanes:
    """One thread for each backend that there is work for, by key. Usable from several threads.

    `ahead`: called in a lane's thread whenever it is idle; returns seconds until it shall be called again, None if
    never: the thread ends then, until there is work again.
    """

    def __init__(self, kind: str, ahead: Callable[[str], float | None], *, max_threads: int = MAX_THREADS) -> None:
        self._kind = kind
        self._ahead = ahead
        self._max_threads = max_threads
        self._lock = threading.Lock()
        self._queues: dict[str, queue.SimpleQueue[Work]] = {}

    def enter(self, key: str) -> None:
        """Go on if this is the thread of `key`. Raises: NeedsLane."""
        if _current.get() != (id(self), key):
            raise NeedsLane(self, key)

    def submit(self, key: str, work: Work) -> None:
        """Raises: NoRoom if there are too many lanes, or no thread for one."""
        with self._lock:
            if key not in self._queues:
                if len(self._queues) >= self._max_threads:
                    raise NoRoom(
                        f"{self._kind} at {key} is not asked: {len(self._queues)} others are, which is the most",
                        after_seconds=5.0,
                    )
                self._queues[key] = queue.SimpleQueue()
                thread = threading.Thread(target=self._serve, args=(key,), name=f"{self._kind} {key}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    del self._queues[key]
                    raise NoRoom(f"{self._kind} at {key} is not asked: {error}", after_seconds=5.0) from error
            self._queues[key].put(work)

    def _serve(self, key: str) -> None:
        _current.set((id(self), key))
        waiting = self._queues[key]
        while True:
            seconds = self._guarded(lambda: self._ahead(key))
            try:
                work = waiting.get_nowait() if seconds is None else waiting.get(timeout=seconds)
            except queue.Empty:
                if seconds is not None:
                    continue
                with self._lock:
                    if waiting.empty():
                        del self._queues[key]
                        return
            else:
                self._guarded(work)

    def _guarded(self, work: Callable[[], float | None]) -> float | None:
        try:
            return work()
        except Exception:
            log.exception("work in a lane failed", lane=self._kind)
            return None


_current: ContextVar[tuple[int, str] | None] = ContextVar("lane", default=None)
