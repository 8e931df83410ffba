"""Processor seconds of some processes together over time, sampled by a thread."""

from __future__ import annotations

import os
import resource
import threading
import time
from pathlib import Path
from typing import Final, Self

_SAMPLE_SECONDS: Final = 0.05


class ProcessorTime:
    """Samples while its block runs. `between` says how many processor seconds went by between two times of day."""

    def __init__(self, *pids: int) -> None:
        self._stats = [Path(f"/proc/{pid}/stat") for pid in pids]
        self._samples: list[tuple[float, float]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def between(self, start: float, end: float) -> float:
        """Times as time.time() gives them."""
        return self._at(end) - self._at(start)

    def _at(self, moment: float) -> float:
        return min(self._samples, key=lambda sample: abs(sample[0] - moment))[1]

    def _run(self) -> None:
        while True:
            ticks = sum(_ticks(stat) for stat in self._stats)
            self._samples.append((time.time(), ticks / os.sysconf("SC_CLK_TCK")))
            if self._stop.wait(_SAMPLE_SECONDS):
                return

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _ticks(stat: Path) -> int:
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def seconds_of(pid: int) -> float:
    """User and system time of a process so far, its children left out."""
    return _ticks(Path(f"/proc/{pid}/stat")) / os.sysconf("SC_CLK_TCK")


def seconds_of_children() -> float:
    """User and system time of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
