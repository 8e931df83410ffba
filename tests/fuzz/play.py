"""One input for one target, within its time; what goes wrong is kept as a case that `make test` plays from then on."""

from __future__ import annotations

import hashlib
import random
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzz.mutate import mutate
from tests.fuzz.targets import Target

CASES: Final = Path(__file__).parent / "cases"
LONGEST_SECONDS: Final = 5
"""Of processor time, so that a busy machine decides nothing: a reader that takes longer for one input of its size
hangs."""


class Hangs(BaseException):
    """The reader did not come to an end. Not an Exception, as a reader may turn those into a refusal."""


@dataclass(frozen=True)
class Crash:
    """An input that a reader neither took nor refused."""

    target: str
    data: bytes
    words: str

    def keep(self, cases: Path = CASES) -> Path:
        """Write it where `make test` finds it."""
        path = cases / self.target / hashlib.sha256(self.data).hexdigest()[:16]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path


def play(target: Target, data: bytes) -> Crash | None:
    """None: it was taken, or refused as it should be. From the main thread alone."""
    try:
        with _within(LONGEST_SECONDS):
            target.attempt(data)
    except (Exception, Hangs):
        return Crash(target.name, data, traceback.format_exc(limit=-6))
    return None


def attempts(target: Target, seed: int, count: int | None, until: float | None = None) -> Iterator[bytes]:
    """Mutated seeds of the target: so many, or until a monotonic time; the same ones for the same seed."""
    dice, seeds, made = random.Random(seed), target.seeds(), 0
    while (count is None or made < count) and (until is None or time.monotonic() < until):
        yield mutate(dice, seeds, most_bytes=target.most_bytes)
        made += 1


@contextmanager
def _within(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hangs(f"not done after {seconds} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
