"""What NVIDIA's driver told the kernel log in this boot: XIDs, and why it did not start. Read as it comes.

An agent that is started again reads the log's ring anew, as far as it goes back.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

MOST_RECORDS = 50_000
"""Read at one look: more than a ring of 4 MiB holds. A storm is read on at the next look."""
MOST_XIDS = 32
"""Kept: as many different pairs of GPU and XID; what comes after them is a count."""
MOST_COMPLAINTS = 4
COMPLAINT_LENGTH = 160
_RECORD_BYTES = 8192

_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]{5,16})\): ([0-9]{1,5})\b")
_RECOVERED = re.compile(r"\b154, .* to 0x0 \(None\)")
"""Whoever resets a GPU is told by an XID that nothing more is to be done: no error."""
_COMPLAINTS = re.compile(
    r"RmInitAdapter failed|API mismatch|fallen off the bus|is not supported by|not supported by the NVIDIA|"
    r"firmware load for nvidia/|GSP firmware|GSP-?RM|nvidia: (?:disagrees|Unknown symbol|module verification|probe)|"
    r"nvidia\.ko|Loading of unsigned module|Loading of module with unavailable key"
)
_TIME = re.compile(rb"[0-9]+,[0-9]+,([0-9]+),")


class KernelLog:
    """What was found so far. `xids`: the first of each pair of GPU and XID, with how many lines it has."""

    def __init__(self, path: str, wall_clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall_clock = wall_clock
        self._descriptor: int | None = None
        self._begun = 0.0
        self._rest = b""
        self.is_readable = True
        self.xids: dict[tuple[str, int], dict[str, Any]] = {}
        self.xids_left_out = 0
        self.complaints: list[str] = []

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
                self._take(line)

    def _open(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self.is_readable = False
            return
        self.is_readable = True
        self._begun = self._wall_clock() - time.clock_gettime(time.CLOCK_MONOTONIC)

    def _take(self, line: bytes) -> None:
        head, _, words = line.partition(b";")
        moment = _TIME.match(head)
        if moment is None or not (b"NVRM" in words or b"nvidia" in words or b"module" in words):
            return
        text = words.decode("utf-8", "replace")
        if xid := _XID.search(text):
            if not _RECOVERED.search(text):
                self._count(pci_address(xid[1]), int(xid[2]), self._begun + int(moment[1]) / 1e6)
        elif _COMPLAINTS.search(text) and len(self.complaints) < MOST_COMPLAINTS:
            complaint = "".join(c if c.isprintable() else " " for c in text)[:COMPLAINT_LENGTH].strip()
            if complaint not in self.complaints:
                self.complaints.append(complaint)

    def _count(self, address: str, xid: int, moment: float) -> None:
        known = self.xids.get((address, xid))
        if known is not None:
            known["count"] += 1
        elif len(self.xids) < MOST_XIDS:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
            self.xids[address, xid] = {"address": address, "xid": xid, "count": 1, "time": when}
        else:
            self.xids_left_out += 1


def pci_address(said: str) -> str:
    """`0000:1b:00` and `0000:1B:00.0` as sysfs has it, 0000:1b:00.0."""
    address = said.lower().strip(":.")
    return address if "." in address else f"{address}.0"
