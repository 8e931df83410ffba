"""One call to a backend: one total deadline over all that is sent and received, and a bound on what is received.

A time-out of a socket bounds the gap between two bytes. A backend that sends one byte each 5 s would hold its caller
for ever; here each wait of a socket gets what is left of the whole call. See `sockets`, which asks this module.

Name resolution is the one part that cannot be ended from here: getaddrinfo waits as long as /etc/resolv.conf says
(glibc: 5 s, twice, for each name server), and the call ends right after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

HEAD_BYTES: Final = 64 * 1024
"""What an answer may have beside its body: status line, headers, lengths of chunks, certificates are not counted."""


class OutboundFailed(OSError):
    """A call was ended from this side. The message names the backend, what was observed and what was expected."""


class TooSlow(OutboundFailed, TimeoutError):
    """The whole call took longer than it may, however steadily the bytes came; so many were `received`."""

    received = 0
    allowed_seconds = 0.0


class TooLarge(OutboundFailed):
    """The backend sent more than an answer may have, or in a coding that hides how much it is."""


class Call:
    """What is left of one call: seconds, and bytes to be received. Used by one thread."""

    def __init__(self, backend: str, seconds: float, max_bytes: int | None, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._clock = clock
        self._began = clock()
        self._ends = self._began + seconds
        self._max_bytes = max_bytes
        self._received = 0
        self.failed: OutboundFailed | None = None
        """Why it was ended; layers between the socket and the caller put other errors around it."""

    def remaining(self) -> float:
        """Seconds, more than 0. Raises: TooSlow if there are none."""
        now = self._clock()
        left = self._ends - now
        if left <= 0:
            took, allowed = now - self._began, self._ends - self._began
            self.failed = error = TooSlow(
                f"{self._backend} was not done after {took:.1f} s (with {self._received} bytes received), "
                f"a call to it may take {allowed:g} s in all"
            )
            error.received, error.allowed_seconds = self._received, allowed
            raise error
        return left

    def received(self, count: int) -> None:
        """Raises: TooLarge if these were too many."""
        self._received += count
        if self._max_bytes is not None and self._received > self._max_bytes + HEAD_BYTES:
            raise self.refuse(f"sent more than {self._max_bytes} bytes, the most that an answer may have here")

    def refuse(self, words: str) -> TooLarge:
        """The error to raise for an answer that must not be read; `words` follow the backend's name."""
        self.failed = error = TooLarge(f"{self._backend} {words}")
        return error

    def within(self, backend: str, seconds: float, max_bytes: int | None, clock: Callable[[], float]) -> Call:
        """A call that is part of this one: it ends no later."""
        return Call(backend, min(seconds, self._ends - clock()), max_bytes, clock)


_current: ContextVar[Call | None] = ContextVar("outbound call", default=None)


def current_call() -> Call | None:
    """The call that this thread is in."""
    return _current.get()


@contextmanager
def bounded_call(
    backend: str, *, seconds: float, max_bytes: int | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Call]:
    """Bound what is sent and received inside, by connections of `sockets`, on this thread.

    `backend` is a name for people, such as `slurmrestd at https://…`; `max_bytes`: of the body, None for no bound. A
    call inside another one ends no later than that.
    Raises: TooSlow, TooLarge, whatever the libraries in between made of it.
    """
    outer = _current.get()
    call = (
        Call(backend, seconds, max_bytes, clock) if outer is None else outer.within(backend, seconds, max_bytes, clock)
    )
    token = _current.set(call)
    try:
        yield call
    except Exception as error:
        if call.failed is None:
            call.remaining()  # a socket's time-out, in whatever wrapping, was the call's end
        elif call.failed is not error:
            raise call.failed from error
        raise
    finally:
        _current.reset(token)
