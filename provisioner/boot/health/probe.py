"""Looks that may hang (a program, a disk), taken in a thread of their own: who asks is told what the last one saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from provisioner.cluster.health.checks import HealthVerdict, ill, well

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 2.0
AT_FIRST_SECONDS: Final = 0.2
"""Until it has been well once."""
LATE_SECONDS: Final = 20.0
"""A look that takes so long hangs, and so does what it looks at."""
FAILURES: Final = 3
"""In a row: one may be a program that is started anew, two a machine that is busy. Who steps back takes the boots that
are under way with him."""


class Probe:
    """`attempt` returns words, or raises OSError with why it failed. `failures`: so many in a row count. `monotonic`:
    seconds."""

    def __init__(
        self,
        name: str,
        attempt: Callable[[], str],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        failures: int = FAILURES,
    ) -> None:
        self.name, self._attempt, self._monotonic, self._most_failures = name, attempt, monotonic, failures
        self._failures = 0
        self._words = "it has not been looked at yet"
        self._was_well = False
        self._ended: float | None = None

    def run(self, stop: threading.Event) -> None:
        """Look until `stop`."""
        while not stop.is_set():
            self.attempt()
            stop.wait(EVERY_SECONDS if self._was_well else AT_FIRST_SECONDS)

    def attempt(self) -> None:
        """Look once."""
        try:
            words = self._attempt()
        except OSError as error:
            self._note(str(error) or type(error).__name__, failed=True)
        except Exception as error:
            log.exception("probe failed", probe=self.name)
            self._note(f"the probe itself failed: {type(error).__name__}", failed=True)
        else:
            self._note(words, failed=False)
        self._ended = self._monotonic()

    def _note(self, words: str, *, failed: bool) -> None:
        failures = self._failures + 1 if failed else 0
        if not failed and self._failures >= self._most_failures and self._was_well:
            log.info("check passes again", check=self.name)
        if failed and failures == self._most_failures and self._was_well:
            log.warning("check fails", check=self.name, why=words)
        self._words, self._failures = words, failures
        self._was_well = self._was_well or not failed

    def verdict(self) -> HealthVerdict:
        """What is known now. Waits for nothing."""
        if self._ended is None:
            return ill(self._words)
        since = self._monotonic() - self._ended
        if since > LATE_SECONDS:
            return ill(f"nothing was heard of it for {since:.0f} s")
        if self._failures >= self._most_failures or not self._was_well:
            return ill(self._words)
        return well(self._words)
