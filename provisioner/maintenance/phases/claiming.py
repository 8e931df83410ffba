"""Claiming, Draining, Drained: the server is closed, looked at again, emptied. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.machinery.wording import some
from provisioner.api.nodes.maintenance import MaintenanceStatus, SlurmDrain
from provisioner.jobs.model.work import EvictionBlocked, JobKind, SlurmDrained, SlurmReserved, Work
from provisioner.maintenance.model.facts import MaintenanceFacts, close_reason, host_obstacle, image_obstacle
from provisioner.maintenance.model.steps import (
    CloseSlurm,
    Evict,
    NeedBudget,
    SetTaint,
    Step,
    Wait,
    WriteStatus,
    changed,
    judged,
)
from provisioner.maintenance.phases.blocking import work_not_known
from provisioner.maintenance.phases.closing import record_drain
from provisioner.maintenance.phases.reboot_methods import explain_no_method, next_method
from provisioner.maintenance.phases.rebooting import begin_attempt
from provisioner.maintenance.requests.effective import effective, may_interrupt, protected_jobs
from provisioner.maintenance.status.record import (
    Blocked,
    is_over,
    next_step,
    note,
    noted,
    phase_since,
    set_blockers,
    with_conditions,
)
from provisioner.maintenance.status.verdict import Cause
from provisioner.rules.nodes import taint_value

SETTLE_SECONDS: Final = 3.0
"""Between the taint and the last look: a scheduler that has not seen the taint may still place a pod."""
POLL_SECONDS: Final = 3.0
IDLE_LOOK_SECONDS: Final = 60.0
CLOSE_AGAIN_SECONDS: Final = 30.0
MAX_NAMES: Final = 8
ALL_JOBS: Final[tuple[JobKind, ...]] = ("Pod", "PodGroup", "SlurmJob")


def decide_claiming(facts: MaintenanceFacts, now: datetime) -> Step:
    """Close the server, then look again past every cache: a job that slipped in sends it back to waiting."""
    m = facts.maintenance
    if noted(m.status, "Closed") is None:
        # Two that claimed at the same moment both see the other now, and both stand back.
        if facts.pool is not None and (facts.budget is None or not facts.budget.fresh):
            return NeedBudget(fresh=True)
        if facts.budget is not None and not facts.budget.has_room:
            return judged(m, "OverBudget", f"claimed at the same moment: {', '.join(facts.budget.taken)}", now)
    early = _in_any_phase(facts, now)
    if early is not None:
        return early
    closed = noted(m.status, "Closed")
    if closed is None or closed > now + timedelta(seconds=SETTLE_SECONDS):  # by a clock that was ahead
        return CloseSlurm(reason=close_reason(m.name))
    settled = closed + timedelta(seconds=SETTLE_SECONDS)
    if now < settled:
        return Wait(seconds=max(0.05, (settled - now).total_seconds()))
    unknown = facts.work.unknown if facts.work is not None else ("not looked yet",)
    if unknown and facts.wanted is not None and facts.wanted.policy != "Now":
        blocked = set_blockers(effective(facts, now), work_not_known(facts, unknown), now)
        return changed(m, blocked, now) or Wait(seconds=POLL_SECONDS)
    by_deadline = facts.wanted is not None and facts.wanted.policy == "Deadline"
    if by_deadline and facts.work is not None and facts.work.jobs and noted(m.status, "Warned") is None:
        # One may have slipped in after the deadline, before the server was closed: nobody has told it yet.
        return Wait(seconds=POLL_SECONDS, warn=now)
    status = note(
        effective(facts, now),
        now,
        "DrainStarted",
        f"closed to new jobs; what runs there is asked to end{_what_runs(facts)}",
        phase="Draining",
    )
    status = next_step(replace(status, blockers=()), "is emptied of what still runs there")
    return WriteStatus(status=with_conditions(m, status, now))


def decide_draining(facts: MaintenanceFacts, now: datetime) -> Step:
    """Ask what runs there to end, until nothing does."""
    m, work = facts.maintenance, facts.work
    early = _in_any_phase(facts, now)
    if early is not None:
        return early
    if work is None:
        return Wait(seconds=POLL_SECONDS)
    if work.is_empty:
        status = replace(effective(facts, now), blockers=(), drained_time=rfc3339_micro(now))
        status = note(status, now, "Drained", "nothing runs there any more", phase="Drained")
        return WriteStatus(status=with_conditions(m, next_step(status, _after_drain(facts)), now))
    interrupts = may_interrupt(facts, now)
    force = facts.wanted is not None and facts.wanted.policy == "Now"
    return Evict(spare=() if interrupts else ALL_JOBS, force=force)


def after_eviction(facts: MaintenanceFacts, held: Iterable[EvictionBlocked], now: datetime) -> Step:
    """What to write once it was asked: who holds it up, and who was asked."""
    blocked: list[Blocked] = [(h.kind, h.name, h.message) for h in held]
    if facts.work is not None:
        blocked += work_not_known(facts, facts.work.unknown)
    asked = _newly_asked(facts)
    status = effective(facts, now)
    if asked:
        status = note(status, now, "Evicted", f"asked to end: {some(asked, MAX_NAMES)}", about=tuple(asked[:MAX_NAMES]))
    return changed(facts.maintenance, set_blockers(status, blocked, now), now) or Wait(seconds=POLL_SECONDS)


def decide_drained(facts: MaintenanceFacts, now: datetime) -> Step:
    """Empty: reboot it, or keep it so."""
    m, wanted = facts.maintenance, facts.wanted
    early = _in_any_phase(facts, now, timed=False)
    if early is not None:
        return early
    if wanted is None or not wanted.boots or m.status.boot_id_after is not None:
        status = next_step(set_blockers(effective(facts, now), (), now), _after_drain(facts))
        return changed(m, status, now) or Wait(seconds=IDLE_LOOK_SECONDS)
    work = facts.work
    if work is None:
        return Wait(seconds=POLL_SECONDS)
    if not work.is_empty:
        status = note(effective(facts, now), now, "DrainStarted", "something runs there again", phase="Draining")
        return WriteStatus(status=with_conditions(m, next_step(status, "is emptied once more"), now))
    obstacle = image_obstacle(facts)
    if obstacle is not None:
        return judged(m, "ImageUnavailable", obstacle, now)
    method = next_method(facts, wanted.action)
    if method is None:
        words = f"no method to reboot the server is open: {explain_no_method(facts, wanted.action)}"
        return judged(m, "NoRebootMethod", words, now)
    return begin_attempt(facts, effective(facts, now), method, now)


def closed(facts: MaintenanceFacts, drained: SlurmDrained | None, now: datetime) -> MaintenanceStatus:
    """The status once Slurm has answered; only a drain of our own is on record as ours to lift, and a reservation."""
    m = facts.maintenance
    words = "closed to new pods by its taint" if facts.node is not None else "has no Node to be closed"
    held = m.status.slurm
    slurm = held if held is not None and held.reserved_time is not None else None
    if drained is not None and drained.ours:
        pool = facts.pool.name if facts.pool is not None else None
        since = slurm.reserved_time if slurm is not None else None
        slurm = SlurmDrain(node=drained.node, reason=drained.reason, node_pool_ref=pool, reserved_time=since)
        words += f", drained in Slurm as {drained.node}"
    elif drained is not None and drained.reason.startswith(close_reason("")):
        words += f"; in Slurm it is still drained by a Maintenance before it ('{drained.reason}')"
    elif drained is not None:
        words += f"; drained in Slurm by somebody else ('{drained.reason}'), which stays as it is"
    # A trouble with Slurm that is over is not waited for any more.
    status = replace(m.status, slurm=slurm, blockers=tuple(b for b in m.status.blockers if b.kind != "Slurm"))
    return note(status, now, "Closed", words)


def reserved(facts: MaintenanceFacts, found: SlurmReserved, begins: datetime, now: datetime) -> MaintenanceStatus:
    """The status once Slurm has reserved it, in place of a drain of ours."""
    status, moment = facts.maintenance.status, rfc3339(begins)
    words = f"reserved in Slurm as {found.node} from {rfc3339(found.begins or begins)} on: what ends by then may start"
    status = replace(status, blockers=tuple(b for b in status.blockers if b.kind != "Slurm"))
    return note(status, now, "Reserved", words, about=(moment,))


def not_reserved(
    facts: MaintenanceFacts, drained: SlurmDrained | None, why: str | None, now: datetime
) -> MaintenanceStatus:
    """The status once it is drained, as Slurm does not reserve it. why: in its words; None where it cannot at all, and
    what is on record to be deleted was not made, unless that was before."""
    status = facts.maintenance.status
    may_be_there = why is not None or any(entry.reason == "Reserved" for entry in status.timeline)
    if status.slurm is not None and not may_be_there:
        status = replace(status, slurm=replace(status.slurm, reserved_time=None))
    status = closed(replace(facts, maintenance=replace(facts.maintenance, status=status)), drained, now)
    words = why or "slurmrestd of Slurm before 25.05 makes no reservations"
    return note(status, now, "NotReserved", f"{words}: no job starts there from now on")


def _in_any_phase(facts: MaintenanceFacts, now: datetime, *, timed: bool = True) -> Step | None:
    """What holds from the claim until the reboot: it stays closed, and goes back if it may not be disturbed."""
    m, node, pool = facts.maintenance, facts.node, facts.pool
    if m.status.boot_id_after is None:
        retreat = _retreat(facts, now)
        if retreat is not None:
            return judged(m, *retreat, now)
    if node is not None and not node.is_tainted(m.name, "NoSchedule"):
        return _close_node(facts, now)
    if timed and pool is not None and (facts.work is None or not facts.work.is_empty):
        limit = pool.spec.maintenance.drain_timeout_seconds
        if is_over(phase_since(m.status), limit, now):
            held = ", ".join(f"{b.kind} {b.name}" for b in m.status.blockers) or "something that does not say so"
            words = (
                f"not empty after {limit} s (spec.maintenance.drainTimeoutSeconds of the NodePool); held up by {held}"
            )
            return judged(m, "DrainTimedOut", words, now)
    work = facts.work
    if work is not None and work.slurm_state is not None and "DRAIN" not in work.slurm_state.upper():
        last = noted(m.status, "Closed")
        if last is None or is_over(last, CLOSE_AGAIN_SECONDS, now):
            return record_drain(facts) or CloseSlurm(reason=close_reason(m.name))
    return None


def _close_node(facts: MaintenanceFacts, now: datetime) -> Step:
    """Its taint. While the API server does not take it the claim says so, and is given up if that lasts."""
    refusal, name = facts.refused.get("Taint"), taint_value(facts.maintenance.name)
    if refusal is None or not (refusal.rests(now) or refusal.lasts(now)):
        return SetTaint(value=name)
    words = f"Node '{facts.server_name}' cannot be closed, the API server does not take its taint: {refusal.words}"
    if refusal.lasts(now) and facts.maintenance.status.boot_id_after is None:
        return judged(facts.maintenance, "NodeRefused", words, now)
    status = set_blockers(effective(facts, now), [("Node", facts.server_name, words)], now)
    otherwise = Wait(seconds=refusal.rest_seconds(now)) if refusal.rests(now) else SetTaint(value=name)
    return changed(facts.maintenance, status, now) or otherwise


def _retreat(facts: MaintenanceFacts, now: datetime) -> tuple[Cause, str] | None:
    if facts.pool is None:
        return "PoolGone", f"the NodePool of Server '{facts.server_name}' is gone: without it nobody knows its jobs"
    moves_to = facts.wanted.node_pool if facts.wanted is not None else None
    if moves_to is not None and facts.next_pool is None and not facts.has_begun:
        return "PoolGone", f"NodePool '{moves_to}', to which Server '{facts.server_name}' was to move, is gone"
    if facts.node is not None and facts.node.held and facts.wanted is not None and facts.wanted.boots:
        return "Held", f"Node '{facts.node.name}' is held by a person"
    of_host = host_obstacle(facts)
    if of_host is not None:
        return "HostInUse", of_host
    ready_to_look = facts.maintenance.status.phase != "Claiming" or noted(facts.maintenance.status, "Closed")
    jobs = protected_jobs(facts, now)
    if jobs and ready_to_look:
        names = ", ".join(f"{j.kind} {j.name}" for j in jobs[:8])
        return "JobStarted", f"a job is there that may not be interrupted, so it waits again: {names}"
    return None


def _what_runs(facts: MaintenanceFacts) -> str:
    """Named before it is asked to end: what has ended by the next look is named nowhere else."""
    work = facts.work or Work()
    there = [*(f"{j.kind} {j.name}" for j in work.jobs if j.kind == "SlurmJob"), *work.evictable]
    return f": {some(there, MAX_NAMES)}" if there else ""


def _newly_asked(facts: MaintenanceFacts) -> list[str]:
    """The pods that are not on record as asked to end."""
    since = facts.maintenance.status.claimed_time or ""
    entries = (e for e in facts.maintenance.status.timeline if e.reason == "Evicted" and e.time >= since)
    recorded = {pod for e in entries for pod in e.about}
    return [p for p in (facts.work.evictable if facts.work is not None else ()) if p not in recorded]


def _after_drain(facts: MaintenanceFacts) -> str:
    wanted = facts.wanted
    if wanted is not None and wanted.boots and facts.maintenance.status.boot_id_after is None:
        return "is rebooted"
    who = ", ".join(r.name for r in wanted.heard if r.action == "Drain") if wanted is not None else ""
    return f"stays out of use until the request to drain is withdrawn ({who})"
