"""No core dumps: what a process of ours has in memory (tokens, passwords, keys) is never written to a disk."""

from __future__ import annotations

import contextlib
import ctypes
import resource
from typing import Final

_PR_SET_DUMPABLE: Final = 4


def forbid_core_dumps() -> None:
    """Of this process from now on; also, no other process of its user may read its memory (ptrace, /proc/PID/mem).

    Programs that it starts keep the limit alone. A program to which the kernel hands dumps (core_pattern with a `|`) is
    not held to limits, but it gets none of a process that is not dumpable. Where a filter of system calls forbids this,
    as in the systemd units, the unit's LimitCORE says the same.
    """
    with contextlib.suppress(OSError, ValueError):
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
