"""Reads the kernel log (/dev/kmsg), from the oldest record that the kernel still has, for everything that searches it.

An agent that is restarted reads the ring buffer again. Source: the kernel's Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

MOST_RECORDS = 50_000
"""Read at one look: more than a ring of 4 MiB holds. A storm is read on at the next look."""
_RECORD_BYTES = 8192
_FIREWALL = re.compile(rb"IN=\S{0,16} OUT=\S{0,16} ")
"""In what a firewall rule logs, behind a prefix of up to 127 characters that whoever wrote the rule chose."""
_TIME = re.compile(rb"[0-9]{1,20},[0-9]{1,20},([0-9]{1,20}),")

Take = Callable[[bytes, float], None]
"""Gets the text of a record, and when it was written, in seconds since 1970."""


class KernelRecords:
    """One reader for several takers: the ring is read once, however many there are."""

    def __init__(self, path: str, wall_clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall_clock = wall_clock
        self._descriptor: int | None = None
        self._begun = 0.0
        self._rest = b""
        self._takers: list[Take] = []
        self.is_readable = True

    def add(self, take: Take) -> None:
        """Hand each record to `take`; what was read before is not repeated."""
        self._takers.append(take)

    def look(self) -> None:
        """Read what came since the last look."""
        if self._descriptor is None:
            self._open()
        if self._descriptor is None:
            return
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(self._descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # the ring went over what was to be read next
            except OSError:
                break
            if not record:
                break
            *lines, self._rest = (self._rest + record).split(b"\n")
            for line in lines:
                self._hand_on(line)
            if len(self._rest) > _RECORD_BYTES:
                self._rest = b""  # no record of the kernel is as long

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self.is_readable = False
            return
        self.is_readable = True
        self._begun = self._wall_clock() - time.clock_gettime(time.CLOCK_MONOTONIC)

    def _hand_on(self, line: bytes) -> None:
        head, _, text = line.partition(b";")
        moment = _TIME.match(head)
        if moment is None:
            return  # a further line of a record (SUBSYSTEM=, DEVICE=)
        if _FIREWALL.search(text, 0, 192):
            return
        written = self._begun + int(moment[1]) / 1e6
        for take in self._takers:
            take(text, written)
