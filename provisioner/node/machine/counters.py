"""Counters of network interfaces and InfiniBand ports that tell of bad cables, modules and ports.

Differences within an hour count, from the first look of this run of the agent on: what a counter had before may be of
the boot, of the cabling, or of last year. A counter that went down was reset, and begins anew.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple


class Counter(NamedTuple):
    """least: the difference from which it is a fault."""

    component: str
    code: str
    severity: str
    least: int


CARRIER_CHANGES = Counter("NIC", "LinkFlapping", "Degraded", 6)
"""Three losses of the link: one comes with a restart of the switch, another with that of its software."""
LINK_DOWNED = Counter("InfiniBand", "LinkDowned", "Degraded", 2)
"""A port goes down once with a restart of its switch."""
SYMBOL_ERROR = Counter("InfiniBand", "SymbolErrors", "Degraded", 120)
"""InfiniBand's bit error rate of 1e-12 allows as many in an hour (IBTA). A good port does not reach it in days, as
forward error correction hides single errors from the counter."""
LINK_ERROR_RECOVERY = Counter("InfiniBand", "LinkErrorRecovery", "Degraded", 6)
"""Retraining without loss of the link. It comes with a restart of the switch, too."""

_OF_PORTS = {"link_downed": LINK_DOWNED, "symbol_error": SYMBOL_ERROR, "link_error_recovery": LINK_ERROR_RECOVERY}
WINDOW_SECONDS = 3600.0
"""Within which a difference counts; what is a fault already is counted on."""
MOST_DEVICES = 32
"""Interfaces, or InfiniBand ports, with each of the counters: as many as the facts name."""


class PortCounters:
    """`faults`: as `provisioner.api.nodes.facts.ObservedFault` names them. `root` is "" on a real machine."""

    def __init__(self, root: str) -> None:
        self._sys = Path(f"{root}/sys")
        self._base: dict[tuple[str, str], int] = {}
        self._begun: dict[tuple[str, str], float] = {}
        self._faults: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def faults(self) -> list[dict[str, Any]]:
        return [dict(each) for each in self._faults.values()]

    def look(self, now: float) -> None:
        """Read all of them. now: seconds since 1970."""
        for folder in _folders(self._sys / "class/net"):
            device = folder / "device"
            if device.exists() and not (device / "physfn").exists():  # neither of software nor a virtual function
                self._read(folder.name, folder / "carrier_changes", CARRIER_CHANGES, now)
        for device in _folders(self._sys / "class/infiniband"):
            if (device / "device/physfn").exists():
                continue
            for port in _folders(device / "ports"):
                for name, counter in _OF_PORTS.items():
                    self._read(f"{device.name}/{port.name}", port / "counters" / name, counter, now)

    def _read(self, device: str, file: Path, counter: Counter, now: float) -> None:
        value, key = _number(file), (device, counter.code)
        if value is None:
            return
        if key not in self._base and sum(code == counter.code for _, code in self._base) >= MOST_DEVICES:
            return
        known = self._faults.get(key)
        if known is None and now - self._begun.get(key, now) > WINDOW_SECONDS:
            self._base.pop(key, None)
        if key not in self._base:
            self._begun[key] = now
        base = self._base.setdefault(key, value)
        if value < base:
            self._base[key] = value - known["count"] if known else value  # what was told stays told
            return
        difference = value - base
        if known is not None:
            known["count"] = max(known["count"], difference)
        elif difference >= counter.least:
            self._faults[key] = {
                "source": "Counters",
                "component": counter.component,
                "device": device,
                "code": counter.code,
                "severity": counter.severity,
                "count": difference,
                "evidence": f"{file.name} grew by {counter.least} or more",
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            }


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(parent.iterdir())
    except OSError:
        return []


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text(encoding="ascii", errors="replace")[:20])
    except (OSError, ValueError):
        return None
