"""Rebooting: one method after the other until a new boot is seen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.images.image import intent_arguments
from provisioner.api.machinery.meta import parse_time, rfc3339_micro
from provisioner.api.nodes.facts import BootIntent
from provisioner.api.nodes.maintenance import (
    AttemptOutcome,
    MaintenanceStatus,
    RebootAttempt,
    RebootMethod,
)
from provisioner.jobs.model.work import Job
from provisioner.maintenance.model.facts import MaintenanceFacts, attempt_obstacle
from provisioner.maintenance.model.steps import NeedId, SetIntent, SetTaint, Step, Wait, WriteStatus, changed, judged
from provisioner.maintenance.phases.new_boot import earlier_boot, new_boot, runs_on
from provisioner.maintenance.phases.reboot_methods import next_method
from provisioner.maintenance.requests.effective import effective, protected_jobs
from provisioner.maintenance.status.record import (
    MAX_ATTEMPTS,
    attempt_seconds,
    end_attempt,
    next_step,
    note,
    set_blockers,
    with_conditions,
)
from provisioner.maintenance.status.verdict import Cause
from provisioner.rules.disturbance import ACCEPTED, ORDERED, TOLD, RebootUnderWay
from provisioner.rules.nodes import taint_value
from provisioner.rules.stage_timeouts import method_timeout_seconds

POLL_SECONDS: Final = 5.0


def begin_attempt(facts: MaintenanceFacts, status: MaintenanceStatus, method: RebootMethod, now: datetime) -> Step:
    """Write down the attempt, with a new id, before anything is done about it."""
    return NeedId(then=lambda new_id: _begin(facts, status, method, new_id, now))


def _begin(
    facts: MaintenanceFacts, status: MaintenanceStatus, method: RebootMethod, new_id: str, now: datetime
) -> WriteStatus:
    before, node = facts.maintenance.status.reboot, facts.node
    if before is not None:
        image, digest, pool = before.image_ref, before.image_digest, before.node_pool_ref
    else:
        image, digest = facts.image_name or "", facts.image.spec.digest if facts.image is not None else ""
        pool = facts.next_pool_name
    deadline = now + timedelta(seconds=method_timeout_seconds(method, facts.pool))
    attempt = RebootAttempt(
        id=new_id,
        method=method,
        image_ref=image,
        image_digest=digest,
        node_pool_ref=pool,
        started_time=rfc3339_micro(now),
        deadline_time=rfc3339_micro(deadline),
    )
    # The boot that this attempt has to replace: after a wrong image it is another one than at the claim.
    boot_id = node.boot_id if node is not None and node.boot_id is not None else status.boot_id_before
    reboot = RebootUnderWay(attempt=attempt, server=facts.server, node=node)
    status = replace(status, reboot=attempt, boot_id_before=boot_id, image_ref=image, blockers=())
    status = set_blockers(status, [("Server", facts.server_name, ORDERED.awaited(reboot))], now)
    moves = f" of NodePool {pool}" if facts.pool is not None and pool not in (None, facts.pool.name) else ""
    words = f"{method} into Image {image}{moves}, attempt {len(status.attempts) + 1} ({new_id})"
    status = note(status, now, "RebootStarted", words, phase="Rebooting")
    status = next_step(status, f"is rebooted by {method}; its boot is awaited until {attempt.deadline_time}")
    return WriteStatus(status=with_conditions(facts.maintenance, status, now))


def decide_rebooting(facts: MaintenanceFacts, now: datetime) -> Step:
    """See the attempt under way to its end, or begin the next one."""
    status, node, reboot = facts.maintenance.status, facts.node, facts.reboot
    if reboot is None:
        return Wait(seconds=POLL_SECONDS)
    attempt, seen = reboot.attempt, new_boot(facts)
    if seen is not None and attempt.outcome != "WrongImage":
        # Of an attempt that was given up, too: what was asked for may come, or be seen, late.
        return _end(facts, "Booted", f"boot {seen} was seen after {_seconds(attempt, now)}", now)
    if attempt.outcome is not None:
        return _next_try(facts, reboot, now)
    earlier = earlier_boot(facts)
    if earlier is not None:
        words = f"boot {earlier} was under way before {attempt.method} ({attempt.id}) was begun, and is replaced, too"
        return WriteStatus(status=note(replace(status, boot_id_before=earlier), now, "EarlierBootSeen", words))
    if (report := reboot.report) is not None and report.state == "Failed":
        return _end(facts, "Failed", f"the agent says: {report.message}", now)
    without = _without_image(facts, reboot, now)
    if without is not None:
        return without
    deadline = parse_time(attempt.deadline_time)
    if now >= deadline:
        return _end(
            facts, "TimedOut", f"nothing of a new boot was seen in {_seconds(attempt, now)}: {_awaits(facts)}", now
        )
    wait = Wait(seconds=max(0.5, min(POLL_SECONDS, (deadline - now).total_seconds())))
    closed = node is None or node.is_tainted(facts.maintenance.name, "NoSchedule")
    if not closed and not facts.rests("Taint", now):
        return SetTaint(value=taint_value(facts.maintenance.name))
    if not reboot.is_by_agent:
        if node is not None and node.has_intent and not facts.rests("Intent", now):
            return SetIntent(intent=None)
        late = () if ACCEPTED.is_taken(reboot) else _jobs_of_old_boot(facts, reboot, now)
        return _job_started(facts, late, now) if late else _told(facts, now) or wait
    if node is not None and node.boot_id is not None and reboot.next_step is TOLD:
        jobs = protected_jobs(facts, now)
        if jobs:
            return _job_started(facts, jobs, now)
        refusal = facts.refused.get("Intent")
        if refusal is not None and refusal.lasts(now):
            return _end(facts, "Failed", f"the API server does not let its agent be told: {refusal.words}", now)
        if refusal is not None and refusal.rests(now):
            return _told(facts, now) or wait
        return SetIntent(intent=_intent(facts, attempt, node.boot_id))
    return _told(facts, now) or wait


def _next_try(facts: MaintenanceFacts, reboot: RebootUnderWay, now: datetime) -> Step:
    """The attempt is over. What the agent was told is taken back first: it must not obey later."""
    node, status, attempt = facts.node, facts.maintenance.status, reboot.attempt
    refusal = facts.refused.get("Intent")
    if node is not None and node.has_intent and not (refusal is not None and refusal.lasts(now)):
        return Wait(seconds=POLL_SECONDS) if refusal is not None and refusal.rests(now) else SetIntent(intent=None)
    jobs = _jobs_of_old_boot(facts, reboot, now)
    if jobs:
        return _job_started(facts, jobs, now)
    attempts = status.attempts
    wrong = sum(a.outcome == "WrongImage" for a in attempts)
    method = next_method(facts, status.action or "Reboot") if wrong < 2 and len(attempts) < MAX_ATTEMPTS else None
    why_not = "no other method to reboot the server is open"
    missing = attempt_obstacle(facts) if method is not None else None
    if missing is not None:  # then no method leads to it, and none is used up
        wished = _wished_image(facts)
        if wished not in (None, attempt.image_ref) or (runs_on(facts) and not ACCEPTED.is_taken(reboot)):
            return judged(facts.maintenance, "ImageUnavailable", missing, now)
        if attempt.outcome != "WrongImage" and wished is not None:
            return _wait_for_image(facts, missing, status, now)
        why_not = missing
    elif method is not None:
        return begin_attempt(facts, effective(facts, now), method, now)
    cause: Cause = "WrongImage" if attempt.outcome == "WrongImage" else "RebootFailed"
    words = "; ".join(f"{a.method} {a.outcome}: {a.message}" for a in attempts)
    return judged(facts.maintenance, cause, f"{why_not}: {words}", now)


def _without_image(facts: MaintenanceFacts, reboot: RebootUnderWay, now: datetime) -> Step | None:
    """Its Image was deleted, or its files are gone, while the attempt is under way; None if that changes nothing.

    Where nobody was told of it and the machine was not brought down before, it goes back to waiting. A machine that is
    down, and stands before its boot script, boots by itself when the Image is back: the attempt is not over before it
    has had half of its time with it, as long as somebody asks for it. Else it has its time and no more, and nobody is
    told of it any more.
    """
    missing = attempt_obstacle(facts)
    if missing is None:
        return None
    runs, status, attempt = runs_on(facts), facts.maintenance.status, reboot.attempt
    told, asked = _was_told(facts, reboot), _wished_image(facts) == attempt.image_ref
    if not told and (runs or not status.attempts):
        return judged(facts.maintenance, "ImageUnavailable", missing, now)
    if not told and not asked:
        return _end(facts, "Failed", missing, now)
    if runs or not asked:
        return None
    seconds = method_timeout_seconds(attempt.method, facts.pool)
    if now + timedelta(seconds=seconds / 2) >= parse_time(attempt.deadline_time):
        extended = replace(attempt, deadline_time=rfc3339_micro(now + timedelta(seconds=seconds)))
        words = f"is rebooted by {attempt.method}; its boot is awaited until {extended.deadline_time}, or for longer"
        status = next_step(replace(status, reboot=extended), f"{words} while its Image is missing")
    return _wait_for_image(facts, missing, status, now)


def _wait_for_image(facts: MaintenanceFacts, missing: str, status: MaintenanceStatus, now: datetime) -> Step:
    m, image = facts.maintenance, status.reboot.image_ref if status.reboot is not None else ""
    facts = replace(facts, maintenance=replace(m, status=status))
    words = f"{missing}; to give up: kubectl delete maintenance {m.name}"
    blocked = set_blockers(effective(facts, now), [("Image", image, words)], now)
    return changed(m, blocked, now) or Wait(seconds=POLL_SECONDS)


def _was_told(facts: MaintenanceFacts, reboot: RebootUnderWay) -> bool:
    """Whether the attempt's agent or BMC may act: the one has its intent, the other its order, carried out or not.

    A Node that was deleted tells of no intent any more.
    """
    if reboot.is_by_agent and runs_on(facts):
        return TOLD.is_taken(reboot)
    return ORDERED.is_taken(reboot) or TOLD.is_taken(reboot)


def _wished_image(facts: MaintenanceFacts) -> str | None:
    """The Image into which a boot is asked for now; None if nobody asks. Only that one is waited for without end."""
    wanted = facts.wanted
    if wanted is None or wanted.awaits_turn or not wanted.boots:
        return None
    if facts.maintenance.metadata.deletion_timestamp is not None:
        return None
    return facts.image_name


def _jobs_of_old_boot(facts: MaintenanceFacts, reboot: RebootUnderWay, now: datetime) -> Sequence[Job]:
    """Jobs that may not be interrupted, where the old boot still runs.

    The kubelet says so, or the agent by its answer: it ends the kubelet before a kexec, and the Node is not Ready then.
    """
    node, before = facts.node, (facts.maintenance.status.boot_id_before or "").lower()
    if node is None or node.boot_id != before:
        return ()
    report = reboot.report
    runs = node.ready or (report is not None and report.state == "Failed")
    return protected_jobs(facts, now) if runs else ()


def _job_started(facts: MaintenanceFacts, jobs: Sequence[Job], now: datetime) -> WriteStatus:
    return judged(facts.maintenance, "JobStarted", f"a job is there that may not be interrupted: {jobs[0].name}", now)


def _end(facts: MaintenanceFacts, outcome: AttemptOutcome, words: str, now: datetime) -> WriteStatus:
    m = facts.maintenance
    attempt = m.status.reboot
    status = end_attempt(m.status, outcome, words, now)
    method = attempt.method if attempt is not None else ""
    reason = {"Booted": "BootSeen", "TimedOut": "RebootTimedOut", "Failed": "RebootAttemptFailed"}[outcome]
    status = note(status, now, reason, f"{method}: {words}", phase="Verifying" if outcome == "Booted" else "Rebooting")
    ahead = "is checked" if outcome == "Booted" else "is rebooted by the next method"
    return WriteStatus(status=with_conditions(m, next_step(replace(status, blockers=()), ahead), now))


def _told(facts: MaintenanceFacts, now: datetime) -> Step | None:
    """The status, where what is waited for has changed."""
    status = set_blockers(effective(facts, now), [("Server", facts.server_name, _awaits(facts))], now)
    return changed(facts.maintenance, status, now)


def _awaits(facts: MaintenanceFacts) -> str:
    reboot, refusal = facts.reboot, facts.refused.get("Intent")
    step = reboot.next_step if reboot is not None else None
    if reboot is not None and step is not None:
        refused = f", and cannot be: {refusal.words}" if step is TOLD and refusal is not None else ""
        return f"{step.awaited(reboot)}{refused}"
    if reboot is None or not reboot.is_by_agent:
        return "a boot by the BMC is awaited"
    report = reboot.report if reboot.node is not None and reboot.node.boot_id is not None else None
    return f"the agent says {report.state}: {report.message}" if report is not None else "a boot is awaited"


def _intent(facts: MaintenanceFacts, attempt: RebootAttempt, boot_id: str) -> BootIntent:
    pool, image = facts.next_pool, facts.image
    return BootIntent(
        id=attempt.id,
        action="Kexec" if attempt.method == "Kexec" else "Reboot",
        boot_id_before=boot_id,
        image=attempt.image_ref,
        image_digest=attempt.image_digest,
        kernel_arguments=intent_arguments(pool, image) if pool is not None and image is not None else (),
    )


def _seconds(attempt: RebootAttempt, now: datetime) -> str:
    return f"{attempt_seconds(attempt, now):.0f} s"
