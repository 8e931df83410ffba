"""The part of the status that follows from the requestors, with a record of who asked for what. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta

from provisioner.api.maintenance import Maintenance, MaintenanceStatus, Requestor
from provisioner.api.meta import parse_time, rfc3339, rfc3339_micro
from provisioner.jobs.work import Job
from provisioner.maintenance.facts import MaintenanceFacts
from provisioner.maintenance.status.record import note

_ABOUT_REQUESTORS = ("Requested", "RequestChanged", "Withdrawn", "RequestIgnored")


def effective(facts: MaintenanceFacts, now: datetime) -> MaintenanceStatus:
    """The status as the requestors have it now. After a reboot was begun only the record of them goes on."""
    m, wanted = facts.maintenance, facts.wanted
    status = replace(
        m.status, phase=m.status.phase or "Waiting", started_time=m.status.started_time or rfc3339_micro(now)
    )
    if wanted is not None and not facts.has_begun:
        deadline = rfc3339(wanted.deadline) if wanted.deadline is not None else None
        if deadline != status.deadline_time:
            status = replace(status, warned_time=None)
        status = replace(
            status,
            action=wanted.action,
            policy=wanted.policy,
            deadline_time=deadline,
            image_ref=facts.image_name if wanted.boots else None,
        )
    return _with_requestors(m, wanted.refused if wanted is not None else (), status, now)


def may_interrupt(facts: MaintenanceFacts, now: datetime) -> bool:
    """Whether jobs may be ended now: by Now at once, by Deadline once it is over and they were warned of it."""
    wanted = facts.wanted
    if wanted is None:
        return False
    if wanted.policy == "Now":
        return True
    moment = eviction_moment(facts)
    return moment is not None and now >= moment


def eviction_moment(facts: MaintenanceFacts, warned: datetime | None = None) -> datetime | None:
    """When a Deadline ends jobs that were or are `warned` at that moment; None before they were.

    The deadline, unless the warning came late (nobody was there to give it): the time that it promises is kept.
    """
    wanted, on_record = facts.wanted, facts.maintenance.status.warned_time
    warned = parse_time(on_record) if on_record is not None else warned
    if wanted is None or wanted.policy != "Deadline" or wanted.deadline is None or warned is None:
        return None
    promised = timedelta(seconds=facts.pool.spec.maintenance.warning_seconds if facts.pool is not None else 0)
    if wanted.since is not None:
        promised = min(promised, max(timedelta(0), wanted.deadline - wanted.since))
    return max(wanted.deadline, warned + promised)


def protected_jobs(facts: MaintenanceFacts, now: datetime) -> tuple[Job, ...]:
    """Jobs that nobody may end now."""
    jobs = facts.work.jobs if facts.work is not None else ()
    if facts.wanted is not None and facts.wanted.policy == "Now":
        return ()
    return tuple(job for job in jobs if job.do_not_disrupt) if may_interrupt(facts, now) else jobs


def _with_requestors(
    m: Maintenance, refused: tuple[Requestor, ...], status: MaintenanceStatus, now: datetime
) -> MaintenanceStatus:
    last: dict[str, tuple[str, str]] = {}
    for entry in status.timeline:
        if entry.reason in _ABOUT_REQUESTORS and entry.about:
            last[entry.about[0]] = (entry.reason, entry.about[-1])
    ignored = {r.name for r in refused}
    for requestor in m.spec.requestors:
        before = last.pop(requestor.name, None)
        words = _words(requestor)
        if requestor.name in ignored:
            reason = "RequestIgnored"
            words = f"{words}; not heard: another requestor wants another Image; file it as a Maintenance of its own"
        else:
            reason = "Requested" if before is None or before[0] in ("Withdrawn", "RequestIgnored") else "RequestChanged"
        request = hashlib.sha256(words.encode()).hexdigest()[:12]
        if before is None or before[1] != request:
            status = note(status, now, reason, words, about=(requestor.name, request))
    for name, (reason, _) in last.items():
        if reason != "Withdrawn":
            status = note(status, now, "Withdrawn", f"{name}: asks for nothing any more", about=(name,))
    return status


def _words(r: Requestor) -> str:
    words = f"{r.name}: {r.action}, {r.policy}"
    if r.deadline_time:
        words += f" {r.deadline_time}"
    if r.image_ref:
        words += f", Image {r.image_ref}"
    if r.user:
        words += f", by user {r.user}"
    return f"{words}: {r.message}" if r.message else words
