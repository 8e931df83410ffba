"""An emulated machine that lost its timer on a busy host: whatever waits for a moment in it waits for ever.

It is the emulator's fault, and the machine is started again. Linux says it on the console after 21 s.
With one emulated processor it was not seen in 193 boots, each on two cores that two loops kept busy (QEMU 10.0.13,
Linux 6.12.118; median 14 s, at most 19 s).
Source: Linux, kernel/rcu/tree_stall.h, rcu_check_gp_kthread_expired_fqs_timer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

BOOT_SECONDS: Final = 120.0
"""Of the kernel. What it says later may be a pause of the host, and something runs that a new start would end."""
_SAID: Final = re.compile(r"\[ *(?P<seconds>\d+\.\d+)\].* kthread timer wakeup didn't happen for \d+ jiffies")


def timer_was_lost(line: str) -> bool:
    """Whether this line of a console says that a machine which was just started hangs."""
    found = _SAID.search(line)
    return found is not None and float(found["seconds"]) <= BOOT_SECONDS


class ConsoleWatch:
    """Reads what is added to a console's log, and looks for lines that say so."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read = log.stat().st_size if log.exists() else 0
        self._half_line = ""

    def has_lost_timer(self) -> bool:
        """Whether a line that was added since the last call says so."""
        if not self._log.exists():
            return False
        with self._log.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(self._read if self._read <= size else 0)  # a log that grew too long was emptied
            added = file.read()
            self._read = file.tell()
        *lines, self._half_line = (self._half_line + added.decode(errors="replace")).split("\n")
        self._half_line = self._half_line[-1000:]
        return any(map(timer_was_lost, lines))
