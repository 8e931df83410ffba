"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from datetime import datetime, timedelta


class FakeClock:
    """Both clocks of a process at once: the wall's and the monotonic one."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.now = start

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return (self.now - self.start).total_seconds()

    def go_to(self, moment: datetime) -> None:
        self.now = max(self.now, moment)

    def in_seconds(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)
