"""What the workers count. Each adds to a tally of its own, which goes to the parent with its next report: nothing is
shared, and nothing waits. It is counted for each packet: hence lists, and no Counter, which costs several times as
much."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from provisioner.boot.dhcp.wire.client import DhcpClient

WAIT_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of the classes of waits; the last class has none."""

_TYPES: Final = 9
"""The message types of RFC 2131, from 1 to 8; 0 is any other number."""
_ROW: Final = 2 * len(DhcpClient)

Received = Sequence[list[int]]
"""By the type of a message, any byte: its row, in which each DhcpClient has two places, the second for what a relay
passed on."""


@dataclass
class Tally:
    """Outcomes and faults by name, messages as they came, and how long answers took, by the classes of WAIT_SECONDS."""

    counters: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    rows: list[list[int]] = field(default_factory=lambda: [[0] * _ROW for _ in range(_TYPES)])
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_SECONDS) + 1))
    waited_seconds: float = 0.0

    def received(self) -> Received:
        """Where messages are counted."""
        return [*self.rows, *[self.rows[0]] * (256 - _TYPES)]

    def messages(self) -> Iterator[tuple[int, bool, DhcpClient, int]]:
        """Type (0: none of RFC 2131), whether a relay passed it on, what sent it, and how many there were."""
        for message_type, row in enumerate(self.rows):
            for place, count in enumerate(row):
                yield message_type, bool(place % 2), DhcpClient(place // 2), count

    def note_wait(self, seconds: float, answers: int) -> None:
        """So many answers took at most so long. A clock that was set back meanwhile makes that 0."""
        seconds = max(0.0, seconds)
        self.waits[bisect_left(WAIT_SECONDS, seconds)] += answers
        self.waited_seconds += seconds * answers

    def add(self, other: Tally) -> None:
        """Take in what was counted elsewhere."""
        for name, count in other.counters.items():
            self.counters[name] += count
        self.rows = [_sum(own, more) for own, more in zip(self.rows, other.rows, strict=True)]
        self.waits = _sum(self.waits, other.waits)
        self.waited_seconds += other.waited_seconds


def _sum(one: list[int], other: list[int]) -> list[int]:
    return [own + more for own, more in zip(one, other, strict=True)]
