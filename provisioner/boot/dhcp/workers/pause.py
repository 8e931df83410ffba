"""How long a worker pauses before its next batch. Pure: the clock is an argument.

To wake for a packet costs more than to answer one. A worker therefore lets packets gather, as network cards do with
interrupts: the longer, the more come. It answers at once while they are few, and while a queue was not emptied.
"""

from __future__ import annotations

from typing import Final

LONGEST_SECONDS: Final = 0.004
MOST_GATHERED: Final = 64
"""Packets that gather for one batch, in all queues together. Two receive buffers must hold them. Linux counts 1,280
bytes for each packet on a veth, and 2,304 or 4,352 on many cards. A queue of a worker without CAP_NET_ADMIN has 425,984
bytes where net.core.rmem_max is 212,992: 97 packets or more. The answers leave together, mostly to one relay, which
takes them up while they come; its buffer has 212,992 bytes by default, 48 to 166 packets."""
_GROWTH: Final = 1.8e-6
"""At 500 exchanges a second batches are 1.8 ms apart. A DISCOVER waits for half of that on average. A REQUEST waits for
all of it, because it comes right after its OFFER: 1.35 ms to an answer."""
_MEASURED_SECONDS: Final = 0.02


def choose_interval_seconds(packets_per_second: float) -> float:
    """From one batch to the next; 0 where no packet is to be expected in it."""
    gathering = MOST_GATHERED / max(packets_per_second, 1.0)
    interval = min(_GROWTH * packets_per_second, LONGEST_SECONDS, gathering)
    return interval if packets_per_second * interval >= 1.0 else 0.0


class Pauses:
    """The pauses of one worker. They follow the rate of the last 20 ms or, after an idle time, of all of it."""

    def __init__(self, now: float) -> None:
        self._measured_since, self._packets = now, 0
        self._interval, self._resumed = 0.0, now

    def after(self, packets: int, now: float, *, emptied: bool) -> float:
        """Seconds to pause, so many packets having been answered; `emptied`: no queue is known to have more.

        The time since the last pause counts: what came during the work is in the next batch, too.
        """
        self._packets += packets
        measured = now - self._measured_since
        if measured >= _MEASURED_SECONDS:
            self._interval = choose_interval_seconds(self._packets / measured)
            self._measured_since, self._packets = now, 0
        if not packets or not emptied:
            return 0.0
        pause = max(0.0, self._interval - (now - self._resumed))
        self._resumed = now + pause
        return pause
