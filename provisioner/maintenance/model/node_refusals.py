"""Writes to a Node that the API server does not take, and when each is tried again.

Why it refuses is not asked: a policy, a right that is missing, an object that is full, or that it has started a moment
ago and knows no rights yet. What is decided of it hangs on how long it has lasted.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.backoff import backoff_seconds
from provisioner.maintenance.model.steps import NodeWrite

LASTING_SECONDS: Final = 30.0
"""For so long a write is only tried again: an API server that has started needs some of it to know who may do what."""
LASTING_COUNT: Final = 5
FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0
FORGOTTEN_AFTER: Final = timedelta(minutes=2)
"""What was not tried again for so long is another trouble the next time."""


@dataclass(frozen=True, kw_only=True)
class NodeWriteRefusal:
    """One kind of write to one Node fails since `since`; it is tried again at `again`. `words`: the API server's."""

    words: str
    since: datetime
    again: datetime
    count: int = 1

    def rests(self, now: datetime) -> bool:
        """Whether it is not tried just now; a moment that is far ahead was written by a clock that was."""
        return now < self.again <= now + timedelta(seconds=LAST_RETRY_SECONDS)

    def rest_seconds(self, now: datetime) -> float:
        return max(0.1, (self.again - now).total_seconds())

    def lasts(self, now: datetime) -> bool:
        """Whether it is no passing trouble any more."""
        return self.count >= LASTING_COUNT and now >= self.since + timedelta(seconds=LASTING_SECONDS)


class NodeRefusals:
    """Those of all servers, in this process: another one finds out for itself. Usable from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, dict[NodeWrite, NodeWriteRefusal]] = {}

    def of(self, server: str) -> Mapping[NodeWrite, NodeWriteRefusal]:
        with self._lock:
            return dict(self._found.get(server, {}))

    def note(self, server: str, write: NodeWrite, words: str, now: datetime, *, rests: bool = True) -> NodeWriteRefusal:
        """It failed once more. `rests`: it is not tried again at once."""
        with self._lock:
            there = self._found.setdefault(server, {})
            before = there.get(write)
            if before is not None and not before.since <= now <= before.again + FORGOTTEN_AFTER:
                before = None
            count = before.count + 1 if before is not None else 1
            seconds = backoff_seconds(count, first=FIRST_RETRY_SECONDS, cap=LAST_RETRY_SECONDS, jitter=lambda: 0.0)
            refusal = there[write] = NodeWriteRefusal(
                words=words,
                since=before.since if before is not None else now,
                again=now + timedelta(seconds=seconds if rests else 0),
                count=count,
            )
            return refusal

    def forget(self, server: str, write: NodeWrite | None = None) -> None:
        """That write succeeded; None: what was refused matters no more."""
        with self._lock:
            there = self._found.get(server, {})
            there.pop(write, None) if write is not None else there.clear()
            if not there:
                self._found.pop(server, None)
