"""Faults of this boot that the kernel log tells of, each once, with how often it came."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Any

from provisioner.node.machine.kernel_log.patterns import CRITICAL, DEGRADED, INFO, Found, read_line
from provisioner.node.machine.kernel_log.records import KernelRecords

MOST_FAULTS = 32
"""Kept: as many as a Server's status has room for."""
MOST_COUNTED = 1_000_000_000
EVIDENCE_LENGTH = 160
"""Of a line: 32 of them leave room for the hardware in the annotation (16 KiB)."""
DEVICE_LENGTH = 64
_RANKS = {INFO: 0, DEGRADED: 1, CRITICAL: 2}
_NO_NAME = re.compile(r"[^A-Za-z0-9_.:@#/-]+")


class FaultLog:
    """`faults`: as `provisioner.api.nodes.facts.ObservedFault` names them, in the order in which they were found."""

    def __init__(self, records: KernelRecords) -> None:
        self._records = records
        self._found: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.left_out = 0
        records.add(self._take)

    def look(self) -> None:
        """Read what came since the last look."""
        self._records.look()

    @property
    def is_readable(self) -> bool:
        return self._records.is_readable

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [dict(each) for each in self._found.values()]

    def _take(self, line: bytes, moment: float) -> None:
        found = read_line(line)
        if found is None:
            return
        device = _NO_NAME.sub("", found.device)[:DEVICE_LENGTH]
        key = (found.component, device, found.code)
        known = self._found.get(key)
        if known is not None:
            known["count"] = min(known["count"] + found.errors, MOST_COUNTED)
            return
        if len(self._found) >= MOST_FAULTS:
            self.left_out += 1
            if not self._make_room(found):
                return
        self._found[key] = {
            "source": "KernelLog",
            "component": found.component,
            "device": device,
            "code": found.code,
            "severity": found.severity,
            "count": found.errors,
            "evidence": printable(line.decode("utf-8", "replace")),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment)),
        }

    def _make_room(self, found: Found) -> bool:
        """Give up the newest that is less severe than `found`, else the newest of a code that many devices have."""
        codes = Counter(each["code"] for each in self._found.values())
        code, devices = codes.most_common(1)[0]
        rank = _RANKS[found.severity]
        given_up = [key for key, each in self._found.items() if _RANKS[each["severity"]] < rank]
        if not given_up and found.code not in codes and devices > 1:
            ranks = {key: _RANKS[each["severity"]] for key, each in self._found.items() if each["code"] == code}
            given_up = [key for key, its in ranks.items() if its <= rank]
        if not given_up:
            return False
        del self._found[given_up[-1]]
        return True


def printable(text: str) -> str:
    """One line, of the first characters."""
    return "".join(c if c.isprintable() else " " for c in text[: 2 * EVIDENCE_LENGTH]).strip()[:EVIDENCE_LENGTH]
