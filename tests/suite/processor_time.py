"""Processor time of this process and of all that it starts, those that outlive it or become daemons included: how much
it was, and which share of it they get."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

_HIERARCHIES: Final = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_SHARES: Final = (("/sys/fs/cgroup", "cpu.weight", 100), ("/sys/fs/cgroup/cpu", "cpu.shares", 1024))
"""Of version 2 and 1 of control groups: folder, file, and what a group has by default."""


def start_meter() -> tuple[Callable[[], float], str]:
    """Return a clock of processor seconds, and what it counts.

    As root, this process moves into a control group of its own, so that the clock counts running children, too. Where
    that is not possible, it counts this process and the children that it has waited for.
    """
    for hierarchy in _HIERARCHIES:
        with suppress(OSError):
            clock = partial(_read_usage, _join(hierarchy) / "cpu.stat")
            clock()
            return clock, "running children included"
    return _reaped, "running children left out"


def take_shares(count: int) -> None:
    """Take so many times the processor time of another such group while both want more than there is.

    A niceness would not do: Linux shares the processors among sessions first (autogroup).
    """
    for folder, file, default in _SHARES:
        with suppress(OSError):
            (_join(Path(folder)) / file).write_text(str(default * count))


def _join(hierarchy: Path) -> Path:
    group = hierarchy / f"provisioner-tests-{os.getpid()}"
    if not (hierarchy / "cgroup.procs").exists():
        raise FileNotFoundError(hierarchy)
    if not group.is_dir():
        group.mkdir()
        (group / "cgroup.procs").write_text(str(os.getpid()))
    return group


def remove_empty_groups() -> None:
    """Remove the control groups of runs that have ended."""
    for hierarchy in {*_HIERARCHIES, *(Path(folder) for folder, _, _ in _SHARES)}:
        for group in hierarchy.glob("provisioner-tests-*"):
            with suppress(OSError):  # busy
                group.rmdir()


def _read_usage(statistics: Path) -> float:
    line = statistics.read_text().partition("\n")[0]
    return int(line.removeprefix("usage_usec ")) / 1e6


def _reaped() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
