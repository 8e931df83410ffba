"""Server-sent events: what changed is made into bytes once, and handed to all who listen.

Who listens to the fleet gets each frame; who listens to a topic, such as `servers/r01-u01`, is told that it changed.
Who comes back with the id of the last frame that it has gets those since; who is too far behind is told to reload.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

KEPT_FRAMES: Final = 120
KEPT_BYTES: Final = 8 * 1024 * 1024
BEHIND_FRAMES: Final = 30
"""Who misses more loads the page anew: that is less than what was missed."""
BEAT_SECONDS: Final = 15.0
"""A comment after so long a silence: proxies keep the connection, and a client that is gone is noticed."""
CHECK_SECONDS: Final = 60.0
"""After so long it is asked again whether who follows still may."""
RETRY: Final = b"retry: 2000\n\n"
BEAT: Final = b": still here\n\n"


@dataclass(frozen=True)
class _Frame:
    number: int
    data: bytes
    topics: frozenset[str]


class Broadcast:
    """`epoch` tells this process from one before it. Usable from several threads."""

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._changed = threading.Condition()
        self._frames: deque[_Frame] = deque()
        self._bytes = 0
        self._number = 0
        self._closed = False

    @property
    def last_id(self) -> str:
        """Id of the newest frame: who made a page of the fleet after asking for it misses nothing after it."""
        with self._changed:
            return self._id(self._number)

    def publish(self, told: Mapping[str, Any], topics: Collection[str]) -> None:
        """Tell everybody. `told`: what who listens to the fleet gets, as JSON; nothing to be told if it is empty."""
        with self._changed:
            self._number += 1
            data = b""
            if told:
                body = json.dumps(told, separators=(",", ":"), ensure_ascii=True).encode()
                data = b"id: %s\nevent: fleet\ndata: %s\n\n" % (self._id(self._number).encode(), body)
            self._frames.append(_Frame(self._number, data, frozenset(topics)))
            self._bytes += len(data)
            while len(self._frames) > KEPT_FRAMES or self._bytes > KEPT_BYTES:
                self._bytes -= len(self._frames.popleft().data)
            self._changed.notify_all()

    def close(self) -> None:
        """End all that is followed: the process is to end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def follow(
        self, after: str | None, topic: str | None, *, clock: Callable[[], float], goes_on: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Frames after the one with the id `after` (None: from now on), until `goes_on`, which is asked every minute,
        says no.

        topic: None for the fleet. clock: monotonic.
        """
        number = self._number_of(after)
        checked = spoke = clock()
        yield RETRY
        if number is None:
            number = self._number
            yield self._event("reset", number)
        while True:
            number, said = self._next(number, topic)
            now = clock()
            if self._closed:
                return
            if now - checked >= CHECK_SECONDS:
                checked = now
                if not goes_on():
                    return
            if said or now - spoke >= BEAT_SECONDS:
                spoke = now
                yield said or BEAT

    def _next(self, number: int, topic: str | None) -> tuple[int, bytes]:
        """The newest number, and what is said to who has all up to `number`; waits for it, as long as a beat."""
        with self._changed:
            if self._number == number and not self._closed:
                self._changed.wait(BEAT_SECONDS)
            newest = self._number
            missed = [frame for frame in self._frames if frame.number > number]
        if len(missed) < newest - number or len(missed) > BEHIND_FRAMES:
            return newest, self._event("reset", newest)
        if topic is None:
            return newest, b"".join(frame.data for frame in missed)
        is_told = any(topic in frame.topics for frame in missed)
        return newest, self._event("changed", newest) if is_told else b""

    def _number_of(self, id_: str | None) -> int | None:
        """None of another process, or of what is not kept any more."""
        with self._changed:
            if not id_:
                return self._number
            epoch, _, number = id_.rpartition("-")
            if epoch != self._epoch or not number.isdecimal() or len(number) > 18 or int(number) > self._number:
                return None
            oldest = self._frames[0].number if self._frames else self._number + 1
            return int(number) if int(number) >= oldest - 1 else None

    def _id(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def _event(self, event: str, number: int) -> bytes:
        return f"id: {self._id(number)}\nevent: {event}\ndata: {{}}\n\n".encode()
