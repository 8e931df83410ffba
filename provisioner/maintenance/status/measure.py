"""What a written status tells the metrics and the Events: what has changed. Pure but for the telling."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import FINAL_PHASES, MaintenanceStatus
from provisioner.cluster.events import Events
from provisioner.cluster.metrics import MaintenanceMeter
from provisioner.maintenance.status.record import OWN_STEPS, attempt_seconds, phase_since
from provisioner.maintenance.status.verdict import FINAL_PHASE_OF, read_verdict

_WARNINGS: Final = frozenset(
    (
        "DrainTimedOut",
        "Failed",
        "NoRebootMethod",
        "NodeGone",
        "NodeNotReady",
        "NodeRefused",
        "NodeReplaced",
        "NotReopened",
        "NotStaged",
        "NotVerified",
        "RebootAttemptFailed",
        "RebootFailed",
        "RebootTimedOut",
        "RequestIgnored",
        "ServerGone",
        "StaysDrained",
        "WrongImage",
    )
)
_TOLD_AT_THE_END: Final = frozenset((*FINAL_PHASE_OF, "Closed")) - {"WrongImage"}
"""How it ends is told once it has ended; that it is closed, by what follows. WrongImage may lead to another attempt."""


def tell_metrics(metrics: MaintenanceMeter, before: MaintenanceStatus, after: MaintenanceStatus, now: datetime) -> None:
    """Durations of what has ended with a write, after it: a crash in between loses one, and never repeats one."""
    action, policy = after.action or "Reboot", after.policy or "WhenIdle"
    began = phase_since(before)
    if before.phase is not None and before.phase != after.phase and began is not None:
        metrics.phase_ended(before.phase, action, _seconds(began, now))
    still = {(b.kind, b.name) for b in after.blockers}
    for blocker in before.blockers:
        if (blocker.kind, blocker.name) not in still:
            metrics.wait_ended(blocker.kind, _seconds(parse_time(blocker.since_time), now))
    ended_before = {a.id: a.outcome for a in before.attempts}
    for attempt in after.attempts:
        if attempt.outcome is not None and ended_before.get(attempt.id) != attempt.outcome:
            metrics.attempt_ended(attempt.method, attempt.outcome, attempt_seconds(attempt, now))
    if after.phase in FINAL_PHASES and before.phase != after.phase:
        verdict = read_verdict(after)
        started = parse_time(after.started_time) if after.started_time else now
        cause = verdict.cause if verdict is not None else "Unknown"
        metrics.finished(after.phase, cause, action, policy, _seconds(started, now))


def tell_events(
    events: Events,
    maintenance: Mapping[str, Any],
    node: Mapping[str, Any] | None,
    before: MaintenanceStatus,
    after: MaintenanceStatus,
) -> None:
    """What is new in the record, and each kind of thing outside that is newly waited for, on the Node. Not that a turn
    is waited for: thousands may, and whoever gives turns says so.

    On the Maintenance where there is no Node: its status holds the whole record. Of several entries that were written
    at once the last one says where it stands, and warnings are told besides; how it ended is told when it has ended.
    """
    name = maintenance["metadata"]["name"]
    known = set(before.timeline)
    new = [(e.reason, e.message) for e in after.timeline if e not in known and e.reason not in _TOLD_AT_THE_END]
    told = [(reason, words) for reason, words in new if reason in _WARNINGS or (reason, words) == new[-1]]
    waited_for = {b.kind for b in before.blockers} | OWN_STEPS | {"Rollout"}
    told += [(f"WaitsFor{b.kind}", b.message) for b in after.blockers if b.kind not in waited_for]
    for reason, message in dict(told).items():
        words = message if message.startswith(f"Maintenance {name}: ") else f"Maintenance {name}: {message}"
        events.record(node or maintenance, "Warning" if reason in _WARNINGS else "Normal", reason, words)


def _seconds(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
