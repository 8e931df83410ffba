"""As whom the network's controllers write, and when what they wrote, or are about to write, is known to all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from provisioner.cluster.own_writes import version_of
from provisioner.cluster.source import Object, Source

MANAGER: Final = "provisioner-network"


class Compilations:
    """The compilations under way, and what was written by them. A value that was let go of may be in one that began
    before; no later one has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0
        self._running: set[int] = set()
        self._written: dict[str, int] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around the reading of the caches and the write that follows from it."""
        with self._lock:
            number = self._next
            self._next += 1
            self._running.add(number)
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(number)

    def now(self) -> int:
        """A moment: all that begins from here on is later."""
        with self._lock:
            return self._next

    def are_over(self, moment: int) -> bool:
        """Whether none that began before `moment` still runs."""
        with self._lock:
            return all(each >= moment for each in self._running)

    def note(self, dpu: str, written: Object | None) -> None:
        """The DPUNetwork as it was written; None: it was deleted."""
        with self._lock:
            self._written.pop(dpu, None)
            if written is not None:
                self._written[dpu] = version_of(written)

    def are_seen(self, networks: Source) -> bool:
        """Whether the cache of DPUNetworks shows all that was written."""
        with self._lock:
            for dpu, version in list(self._written.items()):
                cached = networks.get(dpu)
                if cached is not None and version_of(cached) >= version:
                    del self._written[dpu]
            return not self._written


class Generations:
    """With which generation of its DPUNetwork each port became as it is, as far as this process wrote it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: dict[tuple[str, str], int] = {}

    def note(self, dpu: str, function: str, generation: int) -> None:
        with self._lock:
            self._since[dpu, function] = generation

    def of(self, dpu: str, function: str) -> int | None:
        with self._lock:
            return self._since.get((dpu, function))

    def forget(self, dpu: str) -> None:
        with self._lock:
            self._since = {key: value for key, value in self._since.items() if key[0] != dpu}
