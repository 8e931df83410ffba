"""What a demo shows while a node is disturbed: the Maintenance's own record, line by line, and what it waits for."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.nodes.maintenance import FINAL_PHASES, Maintenance

INTERVAL_SECONDS: Final = 0.5


def request_patch(condition: str, reason: str, message: str, now: datetime) -> str:
    """The patch of a Node's status by which a person asks: strategic merge, as `kubectl patch` sends by default."""
    wanted: Mapping[str, str] = {
        "type": condition,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": rfc3339(now),
        "lastHeartbeatTime": rfc3339(now),
    }
    return json.dumps({"status": {"conditions": [wanted]}})


def find_latest(maintenances: list[Maintenance], server: str, since: datetime) -> Maintenance | None:
    """The newest Maintenance of `server` made since then."""
    own = [
        found
        for found in maintenances
        if found.spec.server_ref == server
        and found.metadata.creation_timestamp is not None
        and parse_time(found.metadata.creation_timestamp) >= since.replace(microsecond=0)
    ]
    return max(own, key=lambda found: (found.metadata.creation_timestamp or "", found.name), default=None)


class MaintenanceDisplay:
    """Prints each entry of the record once, and what is waited for when that changes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown = ""
        self._blockers: tuple[str, ...] = ()

    def show(self, maintenance: Maintenance) -> None:
        for entry in maintenance.status.timeline:
            if entry.time > self._shown:
                self._line(entry.time, entry.phase, f"{entry.reason}: {entry.message}")
                self._shown = entry.time
        blockers = tuple(blocker.message for blocker in maintenance.status.blockers)
        if blockers != self._blockers:
            self._blockers = blockers
            for message in blockers:
                self._line(rfc3339(datetime.now(UTC)), maintenance.status.phase or "", f"waits for: {message}")
        self._out.flush()

    def _line(self, when: str, phase: str, words: str) -> None:
        self._out.write(f"{when[11:19]}  {phase:<10} {words}\n")


def follow_maintenance(
    read: Callable[[], Maintenance | None], display: MaintenanceDisplay, *, timeout_seconds: float
) -> Maintenance | None:
    """Show a Maintenance until it has ended or the time is over; returns it as it was seen last."""
    deadline = time.monotonic() + timeout_seconds
    seen: Maintenance | None = None
    while time.monotonic() < deadline:
        with contextlib.suppress(Retryable):  # the API server is away; the record will tell what happened meanwhile
            seen = read() or seen
        if seen is not None:
            display.show(seen)
            if seen.status.phase in FINAL_PHASES:
                return seen
        time.sleep(INTERVAL_SECONDS)
    return seen
