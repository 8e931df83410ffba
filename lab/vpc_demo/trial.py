"""One thing that is tried, what must come of it, and what does; tried again while a change is on its way."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

ANSWER: Final = "an answer"
NOTHING: Final = "nothing"
REFUSAL: Final = "a refusal"
"""Whoever refuses a connection was reached: it is not NOTHING."""
HEARD: Final = "it is heard"
NOT_HEARD: Final = "it is not heard"
CHANGE_SECONDS: Final = 20.0
"""How long what was asked for by kubectl may take until packets show it. It takes less than one, on an idle machine."""
_INTERVAL_SECONDS: Final = 0.1
_CALM: Final = frozenset({NOTHING, NOT_HEARD})


@dataclass(frozen=True)
class Trial:
    """`who` does `what`, as a person would read it; `attempt` does it and says what came of it: one of the words above,
    or who answered. within_seconds: how long it may take to become `must`; 0 if it must be so already."""

    who: str
    what: str
    must: str
    attempt: Callable[[], str]
    within_seconds: float = 0.0


@dataclass(frozen=True)
class Result:
    """`did`: what came of the trial in the end, `seconds` after its first attempt began."""

    trial: Trial
    did: str
    seconds: float

    @property
    def is_right(self) -> bool:
        return self.did == self.trial.must


def carry_out(
    trial: Trial,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Result:
    """Attempt it until what must come of it does, or its time is over.

    Nothing, where something came before, is believed at the second time: packets are lost for other reasons, too.
    """
    begin = clock()
    while True:
        did = trial.attempt()
        seconds = clock() - begin
        if did == trial.must and trial.within_seconds and did in _CALM:
            did = trial.attempt()
        if did == trial.must or seconds >= trial.within_seconds:
            return Result(trial, did, seconds)
        sleep(_INTERVAL_SECONDS)
