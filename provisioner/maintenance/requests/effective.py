"""The part of the status that follows from the requestors, with a record of who asked for what. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta

from provisioner.api import NodePool
from provisioner.api.machinery.meta import parse_time, rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import MaintenanceEffect
from provisioner.api.nodes.maintenance import Maintenance, MaintenanceStatus, Requestor
from provisioner.jobs.model.work import Job
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.status.record import note
from provisioner.rules.requests import NodeRequest

_ABOUT_REQUESTORS = ("Requested", "RequestChanged", "Withdrawn", "RequestIgnored")


def effective(facts: MaintenanceFacts, now: datetime) -> MaintenanceStatus:
    """The status as the requestors have it now. After a reboot was begun only the record of them goes on.

    A turn that is taken back takes the warning back, too: jobs are warned anew when it comes again.
    """
    m, wanted = facts.maintenance, facts.wanted
    status = replace(
        m.status, phase=m.status.phase or "Waiting", started_time=m.status.started_time or rfc3339_micro(now)
    )
    if wanted is not None and not facts.has_begun:
        deadline = rfc3339(wanted.deadline) if wanted.deadline is not None else None
        if deadline != status.deadline_time or wanted.awaits_turn:
            status = replace(status, warned_time=None)
        status = replace(
            status,
            action=wanted.action,
            policy=wanted.policy,
            deadline_time=deadline,
            image_ref=facts.image_name if wanted.boots else None,
        )
    return _with_requestors(m, wanted.refused if wanted is not None else (), status, now)


def closing(wanted: NodeRequest | None, pool: NodePool | None) -> MaintenanceEffect | None:
    """How a server of `pool` is closed to new jobs while running ones go on; None: not at all.

    Where the pool wants it closed as soon as a Maintenance is planned, one that waits for its turn is not planned yet.
    """
    if wanted is None or pool is None:
        return None
    return "NoSchedule" if _closes_as_planned(wanted, pool) else wanted.closing


def closing_moment(wanted: NodeRequest | None, pool: NodePool | None) -> datetime | None:
    """From when on a server of `pool` that is closed takes no job, if those that end by then may still start."""
    if wanted is None or pool is None or _closes_as_planned(wanted, pool):
        return None
    return wanted.closing_time


def _closes_as_planned(wanted: NodeRequest, pool: NodePool) -> bool:
    return pool.spec.maintenance.cordon == "WhenPlanned" and not wanted.awaits_turn


def may_interrupt(facts: MaintenanceFacts, now: datetime) -> bool:
    """Whether jobs may be ended now: by Now at once, by Deadline once it is over and they were warned of it; never for
    who waits for a turn."""
    wanted = facts.wanted
    if wanted is None or wanted.awaits_turn:
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
    if facts.wanted is not None and facts.wanted.policy == "Now" and not facts.wanted.awaits_turn:
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
        words, why = _words(requestor), ""
        if requestor.name in ignored:
            reason = "RequestIgnored"
            why = "; not heard: another requestor wants another Image; file it as a Maintenance of its own"
        else:
            reason = "Requested" if before is None or before[0] in ("Withdrawn", "RequestIgnored") else "RequestChanged"
        # What is said of a turn changes more often than what is asked for; the blocker has it.
        known = words if requestor.turn is None else _words(replace(requestor, message=None))
        words, request = f"{words}{why}", hashlib.sha256(f"{known}{why}".encode()).hexdigest()[:12]
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
    if r.turn:
        words += f", turn {r.turn}"
    if r.user:
        words += f", by user {r.user}"
    return f"{words}: {r.message}" if r.message else words
