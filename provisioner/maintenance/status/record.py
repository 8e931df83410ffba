"""The status that is written: timeline, blockers, conditions. Pure.

The timeline is the audit record, and each new entry of it becomes an Event on the Node and on the Maintenance.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from provisioner.api.machinery.conditions import condition_of, merge_conditions
from provisioner.api.machinery.meta import Condition, ConditionStatus, parse_time, rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import MAINTENANCE_CONDITIONS
from provisioner.api.nodes.maintenance import (
    SUCCEEDED,
    AttemptOutcome,
    Blocker,
    BlockerKind,
    Maintenance,
    MaintenancePhase,
    MaintenanceStatus,
    RebootAttempt,
    TimelineEntry,
)
from provisioner.maintenance.status.verdict import FINAL_PHASE_OF, Cause
from provisioner.rules.disturbance import PHASES, may_follow

MAX_TIMELINE: Final = 128
FIRST_ENTRIES: Final = 24
MAX_BLOCKERS: Final = 32
MAX_ATTEMPTS: Final = 16
MAX_WORDS: Final = 1024
OWN_STEPS: Final[frozenset[BlockerKind]] = frozenset(("Agent", "Server", "Checks"))
"""What is waited for is a step of the Maintenance itself, not somebody else."""
SETTLE_SECONDS: Final = 10.0
"""For so long, a thing that is waited for is on record in its first words."""

Blocked = tuple[BlockerKind, str, str]
"""Kind, name and message of something that is waited for; `set_blockers` adds since when."""


def note(
    status: MaintenanceStatus,
    now: datetime,
    reason: str,
    message: str,
    *,
    phase: MaintenancePhase | None = None,
    about: tuple[str, ...] = (),
) -> MaintenanceStatus:
    """`status` with one more entry in its record, and in `phase` if one is given. Who decides later reads `about`,
    never the message. Raises: ValueError for a phase that does not follow."""
    phase = phase or status.phase or "Waiting"
    if not may_follow(status.phase, phase):
        raise ValueError(f"phase {phase} of a Maintenance does not follow {status.phase}, see PHASES")
    entry = TimelineEntry(time=rfc3339_micro(now), phase=phase, reason=reason, message=clip(message), about=about)
    timeline = (*status.timeline, entry)
    if len(timeline) > MAX_TIMELINE:
        timeline = (*timeline[:FIRST_ENTRIES], *timeline[FIRST_ENTRIES - MAX_TIMELINE :])
    return replace(status, phase=phase, timeline=timeline)


def set_blockers(status: MaintenanceStatus, blocked: Iterable[Blocked], now: datetime) -> MaintenanceStatus:
    """`status` waiting for that; what was waited for before keeps its time."""
    since = {(b.kind, b.name): b.since_time for b in status.blockers}
    found: dict[tuple[str, str], Blocker] = {}
    for kind, name, message in blocked:
        key = (kind, name[:512])
        time = since.get(key, rfc3339(now))
        found.setdefault(key, Blocker(kind=kind, name=name[:512], message=clip(message), since_time=time))
    return replace(status, blockers=tuple(found.values())[:MAX_BLOCKERS])


def rests(before: MaintenanceStatus, after: MaintenanceStatus, now: datetime) -> float:
    """Seconds until `after` is worth a write: the words of a step that is waited for change quickly in the beginning.

    0 if anything but these words differs, or if they have had their time.
    """
    if not before.blockers or not after.blockers:
        return 0.0
    if not {b.kind for b in (*before.blockers, *after.blockers)} <= OWN_STEPS:
        return 0.0
    if replace(after, blockers=before.blockers, next_step=before.next_step) != before:
        return 0.0
    began = max((parse_time(b.since_time) for b in before.blockers), default=now)
    rest = (began + timedelta(seconds=SETTLE_SECONDS) - now).total_seconds()
    return rest if 0 < rest <= SETTLE_SECONDS else 0.0


def next_step(status: MaintenanceStatus, words: str | None) -> MaintenanceStatus:
    return replace(status, next_step=clip(words) if words is not None else None)


def judge(maintenance: Maintenance, cause: Cause, message: str, now: datetime) -> MaintenanceStatus:
    """The status that holds the verdict, before anything is undone.

    An attempt under way is over: no boot is ordered for it any more, and none that was ordered is carried out.
    """
    verdict: ConditionStatus = "Unknown"
    if cause in FINAL_PHASE_OF:
        verdict = "True" if FINAL_PHASE_OF[cause] == "Completed" else "False"
    status = note(replace(maintenance.status, reboot=_over(maintenance.status, message, now)), now, cause, message)
    condition = Condition(
        type=SUCCEEDED,
        status=verdict,
        reason=cause,
        message=clip(message),
        last_transition_time=rfc3339(now),
        observed_generation=maintenance.metadata.generation,
    )
    kept = tuple(c for c in status.conditions if c.type != SUCCEEDED)
    words = "goes back to waiting" if verdict == "Unknown" else f"ends as {FINAL_PHASE_OF[cause]}"
    blockers = () if verdict != "Unknown" else status.blockers
    return next_step(
        replace(status, conditions=(*kept, condition), blockers=blockers), f"is released: {words} ({cause})"
    )


def _over(status: MaintenanceStatus, message: str, now: datetime) -> RebootAttempt | None:
    """It is not among those that were tried: its method stays open."""
    attempt = status.reboot
    if attempt is None or attempt.outcome is not None:
        return attempt
    return _ended(attempt, "Failed", message, now)


def _ended(attempt: RebootAttempt, outcome: AttemptOutcome, message: str, now: datetime) -> RebootAttempt:
    return replace(attempt, ended_time=rfc3339_micro(now), outcome=outcome, message=clip(message))


def with_conditions(maintenance: Maintenance, status: MaintenanceStatus, now: datetime) -> MaintenanceStatus:
    """`status` with the conditions that follow from its phase."""
    phase: MaintenancePhase = status.phase or "Waiting"
    words = describe(maintenance, status)
    wanted = [
        condition_of(maintenance, type_, type_ in PHASES[phase].conditions, phase, words, now)
        for type_ in MAINTENANCE_CONDITIONS
    ]
    return replace(status, conditions=merge_conditions(status.conditions, *wanted))


def describe(maintenance: Maintenance, status: MaintenanceStatus) -> str:
    """The Maintenance in few words, the same while its phase is."""
    image = f" to Image {status.image_ref}" if status.image_ref and status.action != "Drain" else ""
    return f"Maintenance {maintenance.name}: {status.action or 'nothing'}{image}, {status.policy or 'WhenIdle'}"


def end_attempt(
    status: MaintenanceStatus,
    outcome: AttemptOutcome,
    message: str,
    now: datetime,
) -> MaintenanceStatus:
    """The attempt under way is over."""
    attempt = status.reboot
    if attempt is None:
        return status
    ended = _ended(attempt, outcome, message, now)
    others = tuple(a for a in status.attempts if a.id != attempt.id)
    return replace(status, reboot=ended, attempts=(*others, ended)[-MAX_ATTEMPTS:])


def attempt_seconds(attempt: RebootAttempt, now: datetime) -> float:
    end = parse_time(attempt.ended_time) if attempt.ended_time else now
    return max(0.0, (end - parse_time(attempt.started_time)).total_seconds())


def phase_since(status: MaintenanceStatus) -> datetime | None:
    """When the present phase began, by the record."""
    began = None
    for entry in reversed(status.timeline):
        if entry.phase != status.phase:
            break
        began = entry.time
    return parse_time(began) if began is not None else None


def noted(status: MaintenanceStatus, reason: str) -> datetime | None:
    """When `reason` was last put on record in the present run of the present phase."""
    found = last_noted(status, (reason,), phase=status.phase)
    return parse_time(found.time) if found is not None else None


def last_noted(
    status: MaintenanceStatus, reasons: Collection[str], *, phase: MaintenancePhase | None
) -> TimelineEntry | None:
    """What was put on record last, for one of `reasons`, in the present run of `phase`."""
    run = takewhile(lambda entry: entry.phase == phase, reversed(status.timeline))
    return next((entry for entry in run if entry.reason in reasons), None)


def is_over(since: datetime | None, seconds: float, now: datetime) -> bool:
    return since is not None and now >= since + timedelta(seconds=seconds)


def clip(words: str) -> str:
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 1] + "…"
