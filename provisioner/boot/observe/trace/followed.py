"""One trace on one boot host: what it follows, and what is still to be told. Bounded in lines, Events and time."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from provisioner.api.machinery.wording import quantity
from provisioner.boot.observe.trace.lines import SEPARATOR
from provisioner.rules.rate import Rate, TokenBucket

LINES_PER_SECOND: Final = 4.0
LINES_AT_ONCE: Final = 60.0
"""A boot has some forty; who asks without pause is counted beyond that."""
MOST_WAITING: Final = 100
MOST_EVENTS: Final = 400
"""Of one trace, by one boot host; at one a second at most."""
MOST_ADDRESSES: Final = 4
LONGEST_MESSAGE: Final = 1000
"""Characters: an Event's message holds 1024."""
_NOTES_LENGTH: Final = 140
"""Room for what is said beside the lines."""


@dataclass
class Followed:
    """about: the object whose trace it is. addresses: its own, and what its MAC addresses were lent lately."""

    about: Mapping[str, Any]
    until: datetime
    macs: frozenset[str]
    own_addresses: frozenset[str]
    bucket: TokenBucket
    lent: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_ADDRESSES))
    waiting: deque[str] = field(default_factory=deque)
    left_out: int = 0
    events: int = 0

    @classmethod
    def begin(
        cls, about: Mapping[str, Any], until: datetime, macs: frozenset[str], addresses: frozenset[str], now: float
    ) -> Followed:
        """`now`: monotonic."""
        return cls(about, until, macs, addresses, TokenBucket.full(Rate(LINES_PER_SECOND, LINES_AT_ONCE), now))

    @property
    def is_full(self) -> bool:
        """Whether no more is told of it."""
        return self.events >= MOST_EVENTS

    @property
    def searched(self) -> tuple[str, ...]:
        """What a line of the access log that may concern it has in it."""
        return (*self.own_addresses, *self.lent, *(mac.replace(":", "-") for mac in self.macs))

    def concerns(self, address: str, path: str = "") -> bool:
        """Whether a request from that address, for that path, may be the machine's."""
        return (
            address in self.own_addresses
            or address in self.lent
            or any(mac.replace(":", "-") in path for mac in self.macs)
        )

    def lend(self, address: str) -> None:
        """Its MAC address was given that one."""
        if address not in self.own_addresses and address not in self.lent:
            self.lent.append(address)

    def add(self, line: str, now: float) -> None:
        """Take in a line, or count it where there are too many. `now`: monotonic."""
        self.bucket, wait = self.bucket.take(now)
        if wait or len(self.waiting) >= MOST_WAITING:
            self.left_out += 1
        else:
            self.waiting.append(line)

    def take(self, host: str) -> str | None:
        """The message of the next Event; None if there is nothing to tell, or no more is told."""
        if self.is_full or not (self.waiting or self.left_out):
            return None
        self.events += 1
        lines, room = [], LONGEST_MESSAGE - len(host) - _NOTES_LENGTH
        while self.waiting and len(self.waiting[0]) + len(SEPARATOR) <= room:
            lines.append(self.waiting.popleft())
            room -= len(lines[-1]) + len(SEPARATOR)
        if self.left_out and not self.waiting:
            lines.append(f"{quantity(self.left_out, 'more was', 'more were')} not told: too many at a time")
            self.left_out = 0
        if self.is_full:
            lines.append("this host tells no more: ask for another trace")
        return f"[{host}] {SEPARATOR.join(lines)}"
