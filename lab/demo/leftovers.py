"""Ending what a lab left behind, and nothing else.

Every process of a lab dies with its parent and runs in the lab's network namespace. A lab that was killed half-way is
found by that namespace: whatever runs in it belongs to the lab, whoever its parent is by now.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Final

import structlog

from lab.network import LabNetwork, processes_in
from provisioner.api.machinery.errors import NeedsHuman

log = structlog.get_logger()

_PATIENCE_SECONDS: Final = 5.0
_KILL_SECONDS: Final = 10.0


def clean_lab(network: LabNetwork) -> None:
    """End every process in the lab's namespace (but the caller and its parents) and delete the namespace.

    Absent is fine. Mounts need no cleaning: they live in the mount namespaces of the processes. Raises: NeedsHuman if
    a process survives SIGKILL.
    """
    end_processes_in(network.namespace)
    network.delete()


def end_processes_in(namespace: str) -> None:
    """End every process in the network namespace of that name, but the caller and its parents. Absent is fine.

    Raises: NeedsHuman if a process survives SIGKILL.
    """
    for signal_number, patience_seconds in ((signal.SIGTERM, _PATIENCE_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        deadline = time.monotonic() + patience_seconds
        signalled: set[int] = set()
        while remaining := _others(namespace):
            # Looked up again each time: a process may have made another one just before it ended.
            for pid in remaining - signalled:
                _signal(pid, signal_number)
            signalled |= remaining
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    if remaining:
        raise NeedsHuman(
            f"processes {sorted(remaining)} in network namespace {namespace} do not end",
            hint="look at them with ps; they hang in the kernel",
        )


def _others(namespace: str) -> set[int]:
    return set(processes_in(namespace)) - _own_ancestry()


def _own_ancestry() -> set[int]:
    ancestry, pid = set(), os.getpid()
    while pid > 1:
        ancestry.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return ancestry


def _signal(pid: int, signal_number: int) -> None:
    try:
        os.kill(pid, signal_number)
    except ProcessLookupError:
        return
    log.info("lab process was signalled", pid=pid, signal=signal_number)
