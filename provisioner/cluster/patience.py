"""A right that is missing, and an API server that does not know yet who has which.

After a restart it answers 403 until its roles are loaded, in the same words as later. So a Forbidden of a service is
tried again for a bounded time since the first one of the same request; only then a person has to grant the right.
Programs that a person waits for have no such patience.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.backoff import backoff_seconds
from provisioner.api.machinery.errors import Forbidden, Retryable

PATIENCE_SECONDS: Final = 30.0
FORGET_SECONDS: Final = 900.0
"""What was not refused for so long is new the next time: longer than what is refused for good is waited with."""
MOST_REQUESTS: Final = 4096
FIRST_RETRY_SECONDS: Final = 0.5
LAST_RETRY_SECONDS: Final = 8.0


class NotYetAllowed(Retryable):
    """Forbidden, though perhaps only until the API server has loaded its roles."""


@dataclass
class _Refused:
    since: float
    last: float
    count: int = 0


class ForbiddenPatience:
    """Remembers since when each request is refused. Usable from several threads. `clock`: monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._refused: OrderedDict[str, _Refused] = OrderedDict()

    def judge(self, request: str, error: Forbidden) -> Forbidden | NotYetAllowed:
        """What to raise for `error`, with which `request` (such as `PATCH Node r01-u01`) was answered."""
        now = self._clock()
        with self._lock:
            found = self._refused.pop(request, None)
            if found is None or now - found.last > FORGET_SECONDS:
                found = _Refused(since=now, last=now)
            found.last, found.count = now, found.count + 1
            self._refused[request] = found
            if len(self._refused) > MOST_REQUESTS:
                self._refused.popitem(last=False)
            if now - found.since >= PATIENCE_SECONDS:
                return error
            count = found.count
        seconds = backoff_seconds(count, first=FIRST_RETRY_SECONDS, cap=LAST_RETRY_SECONDS)
        return NotYetAllowed(f"{error}; tried again for {PATIENCE_SECONDS:.0f} s", after_seconds=seconds)

    def is_allowed(self, request: str) -> None:
        """It was not refused."""
        if self._refused:
            with self._lock:
                self._refused.pop(request, None)
