"""A lab's API server, asked from outside the lab's network namespace, as often as a test that waits wants to.

A kubectl for each look takes most of a processor second, and the machines that are waited for have to share it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from lab.network import LabNetwork
from provisioner.cluster.client import Cluster

T = TypeVar("T")

_NEW_NETWORK: Final = 0x40000000
"""CLONE_NEWNET of linux/sched.h; Python has no setns before 3.12."""


class ApiServer:
    """The administrator's door. One thread of this process is in the namespace, and everything is asked by it."""

    def __init__(self, network: LabNetwork, kubeconfig: Path) -> None:
        """`kubeconfig`: the administrator's, of the lab that runs in `network`."""
        self._thread = ThreadPoolExecutor(1, initializer=_enter, initargs=(Path("/run/netns") / network.namespace,))
        self._cluster = Cluster.connect(kubeconfig, user_agent="provisioner-journey")

    def ask(self, question: Callable[[Cluster], T]) -> T:
        """Raises: what `question` raises."""
        return self._thread.submit(question, self._cluster).result()


def _enter(namespace: Path) -> None:
    """Move the calling thread, and no other. Raises: OSError."""
    opened = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(opened, _NEW_NETWORK) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    finally:
        os.close(opened)
