"""`--wait`: tells what happens to Maintenances until all of them have come to where they were to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from provisioner.api import Maintenance
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import NotFound, Retryable
from provisioner.api.machinery.wording import plain
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.cli import printer
from provisioner.cli.kubectl.failing import DONE, FAILED, TIMED_OUT
from provisioner.cli.kubectl.filing import Filed
from provisioner.cluster.client import Cluster
from provisioner.cluster.leadership import read_no_leader

INTERVAL_SECONDS: Final = 1.0
LEASES_SECONDS: Final = 60.0
"""Whether controllers lead is read no more often."""


@dataclass
class WatchedMaintenance:
    """One Maintenance, and what was told of it already."""

    server: str
    name: str
    action: str
    told: str = ""
    blockers: tuple[str, ...] = ()
    end: str | None = None

    def news(self, m: Maintenance) -> list[str]:
        """Lines that were not told yet."""
        lines = []
        for entry in m.status.timeline:
            if entry.time > self.told:
                lines.append(self._line(entry.time[11:19], entry.phase, f"{entry.reason}: {entry.message}"))
                self.told = entry.time
        blockers = tuple(f"{b.kind} {b.name}: {b.message}" for b in m.status.blockers)
        if blockers != self.blockers:
            lines += [self._line("", m.status.phase or "Waiting", f"waits for {words}") for words in blockers]
            self.blockers = blockers
        return lines

    def outcome(self, m: Maintenance) -> str | None:
        """How it ended; a Drain is there once the node is drained. None while it goes on."""
        phase = m.status.phase
        if phase in FINAL_PHASES:
            return phase
        return "Drained" if self.action == "Drain" and phase == "Drained" else None

    def verdict(self, m: Maintenance) -> str:
        """The last line."""
        found = find_condition(m.status.conditions, "Succeeded")
        words = f": {found.message}" if found is not None and found.message else ""
        return plain(f"node/{self.server} {(self.end or '').lower()} (Maintenance {self.name}){words}")

    def _line(self, clock: str, phase: str, words: str) -> str:
        return plain(f"{clock:8}  {self.server}  {phase:10}  {words}")


def wait_for(
    cluster: Cluster,
    filed: Sequence[Filed],
    *,
    timeout_seconds: float | None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Tell what happens until all have ended; returns the exit code.

    An API server that is away is waited for. Who presses Control-C leaves the request as it is, and is told so.
    """
    watched = [WatchedMaintenance(f.server, f.maintenance.name, f.requestor.action) for f in filed]
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    read_leases_at = time.monotonic()
    try:
        while True:
            if time.monotonic() >= read_leases_at:
                read_leases_at = time.monotonic() + LEASES_SECONDS
                no_leader = read_no_leader(cluster, datetime.now(UTC))
                if no_leader is not None:
                    printer.say(no_leader.sentence, err=True)
            for each in [w for w in watched if w.end is None]:
                _look(cluster, each)
            left = [w for w in watched if w.end is None]
            if not left:
                return DONE if all(w.end in ("Completed", "Drained") for w in watched) else FAILED
            if deadline is not None and time.monotonic() >= deadline:
                names = " ".join(w.server for w in left)
                printer.say(f"error: not done within the time: {names}; the request stands", err=True)
                printer.say(f"  see: kubectl provision why {left[0].server}", err=True)
                return TIMED_OUT
            sleep(INTERVAL_SECONDS if len(left) <= 20 else len(left) / 20)
    except KeyboardInterrupt:
        names = " ".join(w.server for w in watched if w.end is None)
        printer.say(
            "",
            f"not waited for any longer; the request stands. Withdraw it: kubectl provision cancel {names}",
            err=True,
        )
        return 130


def _look(cluster: Cluster, each: WatchedMaintenance) -> None:
    try:
        m = cluster.read(Maintenance, each.name)
    except NotFound:
        each.end = "Cancelled"
        printer.say(f"node/{each.server} cancelled: Maintenance {each.name} was deleted")
        return
    except Retryable:
        return
    for line in each.news(m):
        printer.say(line)
    each.end = each.outcome(m)
    if each.end is not None:
        printer.say(each.verdict(m))
