"""One lane for each backend: few calls at a time, and none for a while to a backend that has failed.

A lane that has no room refuses at once; it never lets a worker wait that others need. Its circuit breaker opens after
several failures in a row, and lets one probe through after each backoff, until one succeeds.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from provisioner.api.machinery.backoff import backoff_seconds
from provisioner.outbound.deadline import OutboundFailed

BreakerState = Literal["Closed", "Open", "HalfOpen"]

MAX_LANES: Final = 8192
_WORDS_LENGTH: Final = 300


class NoRoom(OutboundFailed):
    """The call was not made. `after_seconds`: when it may be worth another attempt."""

    def __init__(self, message: str, *, after_seconds: float) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


@dataclass(frozen=True, kw_only=True)
class LanePolicy:
    calls: int = 2
    """At most so many at a time to one backend."""
    failures: int = 3
    """The breaker opens after so many in a row."""
    first_seconds: float = 5.0
    """The first wait before a probe; it doubles up to `cap_seconds`, each less up to a half by chance."""
    cap_seconds: float = 60.0


@dataclass(frozen=True, kw_only=True)
class Lane:
    """What is known of one backend. Times are of a monotonic clock, in seconds."""

    calls: int = 0
    """Under way."""
    failures: int = 0
    """In a row."""
    failing_since: float | None = None
    probe_at: float | None = None
    """The breaker is open, and lets a probe through from then on; None while it is closed."""
    probing: bool = False
    words: str = ""
    """Of the last failure."""
    used_at: float = 0.0

    @property
    def breaker(self) -> BreakerState:
        if self.probe_at is None:
            return "Closed"
        return "HalfOpen" if self.probing else "Open"


def refusal(lane: Lane, backend: str, policy: LanePolicy, now: float) -> NoRoom | None:
    """Why no call may begin now."""
    if lane.probe_at is not None:
        wait = max(lane.probe_at - now, 0.0)
        if lane.probing or wait > 0:
            when = "a probe is under way" if lane.probing else f"the next attempt is in {wait:.0f} s"
            return NoRoom(
                f"{backend} is not asked: {lane.failures} calls in a row have failed for {_seconds(lane, now)} "
                f"({lane.words}); {when}",
                after_seconds=max(wait, 1.0),
            )
    if lane.calls >= policy.calls:
        failing = f", and the last one failed ({lane.words})" if lane.words else ""
        return NoRoom(
            f"{backend} is not asked: {lane.calls} calls to it are under way, of at most {policy.calls} at a "
            f"time{failing}",
            after_seconds=1.0,
        )
    return None


def begun(lane: Lane, now: float) -> Lane:
    return replace(lane, calls=lane.calls + 1, probing=lane.probe_at is not None, used_at=now)


def succeeded(lane: Lane, now: float) -> Lane:
    return Lane(calls=lane.calls - 1, used_at=now)


def failed(lane: Lane, words: str, policy: LanePolicy, now: float, spread: float) -> Lane:
    """`spread`: by chance, from 0 to 1, lest all lanes probe at once."""
    failures = lane.failures + 1
    probe_at = None
    if failures >= policy.failures:
        in_a_row, first, cap = failures - policy.failures + 1, policy.first_seconds, policy.cap_seconds
        probe_at = now + backoff_seconds(in_a_row, first=first, cap=cap, jitter=lambda: spread)
    since = now if lane.failing_since is None else lane.failing_since
    return Lane(
        calls=lane.calls - 1,
        failures=failures,
        failing_since=since,
        probe_at=probe_at,
        words=words[:_WORDS_LENGTH],
        used_at=now,
    )


class Bulkhead:
    """The lanes of one kind of backend, by key (mostly a URL). Usable from several threads.

    At most `max_lanes` are remembered; those without a call or a failure are forgotten first.
    """

    def __init__(
        self,
        kind: str,
        policy: LanePolicy,
        *,
        clock: Callable[[], float] = time.monotonic,
        spread: Callable[[], float] = random.random,
        max_lanes: int = MAX_LANES,
    ) -> None:
        self.kind = kind
        self._policy = policy
        self._clock = clock
        self._spread = spread
        self._max_lanes = max_lanes
        self._lock = threading.Lock()
        self._lanes: dict[str, Lane] = {}

    @contextmanager
    def call(
        self, key: str, *, counts: type[BaseException] | tuple[type[BaseException], ...] = OSError
    ) -> Iterator[None]:
        """Make one call inside. An error of `counts` is a failure of the backend; another one says that it answers.

        Raises: NoRoom, at once, if it may not be made.
        """
        self._begin(key)
        failure: str | None = "the call was broken off"
        try:
            yield
            failure = None
        except counts as error:
            failure = str(error) or type(error).__name__
            raise
        except Exception:
            failure = None
            raise
        finally:
            self._end(key, failure)

    def refusal(self, key: str) -> NoRoom | None:
        """Why a call would be refused now; None if it would not."""
        with self._lock:
            return refusal(self._lanes.get(key, Lane()), self._name(key), self._policy, self._clock())

    def breaker(self, key: str) -> BreakerState:
        with self._lock:
            return self._lanes.get(key, Lane()).breaker

    def lanes(self) -> dict[str, Lane]:
        """By key, for metrics and messages."""
        with self._lock:
            return dict(self._lanes)

    def forget(self, key: str) -> None:
        """Nobody uses that backend any more, or it was given another address or password."""
        with self._lock:
            if key in self._lanes and not self._lanes[key].calls:
                del self._lanes[key]

    def _begin(self, key: str) -> None:
        with self._lock:
            now = self._clock()
            lane = self._lanes.get(key) or self._new_lane()
            refused = refusal(lane, self._name(key), self._policy, now)
            if refused is not None:
                raise refused
            self._lanes[key] = begun(lane, now)

    def _new_lane(self) -> Lane:
        if len(self._lanes) >= self._max_lanes:
            idle = [key for key, lane in self._lanes.items() if not lane.calls]
            if not idle:
                raise NoRoom(
                    f"calls to {len(self._lanes)} backends of kind {self.kind} are under way", after_seconds=1.0
                )
            # Those in good health first, and of them the one that was used longest ago.
            del self._lanes[min(idle, key=lambda key: (self._lanes[key].failures > 0, self._lanes[key].used_at))]
        return Lane()

    def _end(self, key: str, failure: str | None) -> None:
        with self._lock:
            lane, now = self._lanes[key], self._clock()
            if failure is None:
                self._lanes[key] = succeeded(lane, now)
            else:
                self._lanes[key] = failed(lane, failure, self._policy, now, self._spread())

    def _name(self, key: str) -> str:
        return f"{self.kind} at {key}"


def _seconds(lane: Lane, now: float) -> str:
    return f"{now - (lane.failing_since if lane.failing_since is not None else now):.0f} s"
