"""All faults of the machine that the agent finds by itself, as facts."""

from __future__ import annotations

from typing import Any

from provisioner.node.machine.counters import PortCounters
from provisioner.node.machine.kernel_log.faults import FaultLog
from provisioner.node.machine.kernel_log.records import KernelRecords

LOOK_SECONDS = 10.0
_ORDER = {"Critical": 0, "Degraded": 1, "Info": 2}


class MachineFaults:
    """records: the reader of the kernel log. `root` is "" on a real machine."""

    def __init__(self, root: str, records: KernelRecords) -> None:
        self._log = FaultLog(records)
        self._counters = PortCounters(root)
        self._looked: float | None = None
        self._known = 0

    def look(self, now: float) -> bool:
        """Look, at most every LOOK_SECONDS; whether there is a fault that was not there before.

        now: seconds since 1970; a clock that was set back does not stop the looks.
        """
        if self._looked is not None and 0 <= now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        self._log.look()
        self._counters.look(now)
        before, self._known = self._known, len(self._log.faults) + len(self._counters.faults) + self._log.left_out
        return self._known > before

    @property
    def facts(self) -> dict[str, Any]:
        """`faults` and `faultsLeftOut` as `provisioner.api.nodes.facts` names them, the worst first."""
        faults = sorted(self._log.faults + self._counters.faults, key=lambda fault: _ORDER[fault["severity"]])
        facts: dict[str, Any] = {"faults": faults} if faults else {}
        if self._log.left_out:
            facts["faultsLeftOut"] = True
        return facts
