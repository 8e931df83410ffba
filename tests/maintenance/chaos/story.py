"""What happened in a world, told line by line; a broken invariant shows the whole of it."""

from __future__ import annotations

from tests.maintenance.chaos.fake_time import FakeClock
from tests.maintenance.chaos.replay import command


class SimulatedCrash(BaseException):
    """The controller's process ends here; nothing in it may catch this."""


class InvariantBroken(AssertionError):
    """Something happened that must never happen; the message is the story up to there."""


class Story:
    """The timeline of one run. `broken` keeps the first invariant that did not hold."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.title = ""
        self.lines: list[str] = []
        self.broken: str | None = None

    @property
    def moment(self) -> float:
        return self._clock.monotonic()

    def tell(self, who: str, what: str) -> None:
        self.lines.append(f"{self._clock.monotonic():8.1f}s  {who:<12} {what}")

    def must(self, holds: bool, words: str) -> None:
        """Note that an invariant is broken unless it holds."""
        if not holds and self.broken is None:
            self.broken = words
            self.tell("BROKEN", words)

    def judge(self) -> None:
        """Raises: InvariantBroken with the story, if anything was broken."""
        if self.broken is not None:
            raise InvariantBroken("\n".join((self.broken, f"in: {self.title}", *self.lines, f"replay: {command()}")))
