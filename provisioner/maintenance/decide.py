"""What to do next about the Maintenance that holds a server. Pure: facts and a moment in, one step out.

`rules/disturbance.py` has its phases and what follows each, `DECIDED_IN` who decides in it.

Each step is decided on what is there, not on what was done last: whoever comes after a crash decides the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.nodes.maintenance import FINAL_PHASES, RELEASE_FINALIZER, MaintenancePhase, MaintenanceStatus
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import (
    NeedId,
    SetFinalizer,
    SetIntent,
    SetNodeConditions,
    Step,
    Wait,
    WriteStatus,
    judged,
)
from provisioner.maintenance.phases.claiming import decide_claiming, decide_drained, decide_draining
from provisioner.maintenance.phases.ends import find_end
from provisioner.maintenance.phases.kept_drain import decide_kept
from provisioner.maintenance.phases.rebooting import decide_rebooting
from provisioner.maintenance.phases.release import decide_release
from provisioner.maintenance.phases.verifying import decide_verifying
from provisioner.maintenance.phases.waiting import decide_behind, decide_waiting
from provisioner.maintenance.status.node_status import NodeCondition, mirrored, turned
from provisioner.maintenance.status.record import phase_since, rests
from provisioner.maintenance.status.verdict import read_verdict

RESYNC_SECONDS: Final = 3600.0
"""Whatever concerns a server is followed; this is for a change that was missed, and for what is kept only so long."""
POLL_SECONDS: Final = 3.0
CLAIM_SECONDS: Final = 5.0
DECIDED_IN: Final[dict[MaintenancePhase, Callable[[MaintenanceFacts, datetime], Step]]] = {
    "Waiting": decide_waiting,
    "Claiming": decide_claiming,
    "Draining": decide_draining,
    "Drained": decide_drained,
    "Rebooting": decide_rebooting,
    "Verifying": decide_verifying,
}
RUNS_ON: Final[tuple[MaintenancePhase, ...]] = ("Draining", "Drained", "Verifying")
"""Phases that begin with a decision of their own, in the same write."""


def decide(facts: MaintenanceFacts, now: datetime) -> Step:
    """The next step of `facts.maintenance`. Phases between which nothing is done are gone through in one write."""
    step = _decide(facts, now)
    if isinstance(step, WriteStatus) and (rest := rests(facts.maintenance.status, step.status, now)) > 0:
        return Wait(seconds=min(rest, POLL_SECONDS))
    while isinstance(step, WriteStatus) and step.status.phase in RUNS_ON and read_verdict(step.status) is None:
        if step.status.phase == facts.maintenance.status.phase:
            break
        facts = replace(facts, maintenance=replace(facts.maintenance, status=step.status))
        following = DECIDED_IN[step.status.phase](facts, now)
        if not isinstance(following, WriteStatus | NeedId):
            break
        step = following
    return step


def cannot_be_taken_back(facts: MaintenanceFacts, step: Step) -> bool:
    """Whether jobs end by `step`, or nobody looks for them again after it; a drain out of time is one."""
    match step:
        case SetIntent(intent=intent):
            return intent is not None and intent.action != "Stage"
        case WriteStatus(status=status):
            verdict = read_verdict(status)
            if verdict is not None and read_verdict(facts.maintenance.status) is None:
                return verdict.cause == "DrainTimedOut"
            return status.phase in ("Draining", "Drained") and status.phase != facts.maintenance.status.phase
        case NeedId():
            return True
        case _:
            return False


def _decide(facts: MaintenanceFacts, now: datetime) -> Step:
    m = facts.maintenance
    finalized, deleted = RELEASE_FINALIZER in m.metadata.finalizers, m.metadata.deletion_timestamp is not None
    if m.status.phase in FINAL_PHASES:
        kept = decide_kept(facts, now)
        if kept is not None:
            return kept
        may_go = finalized and deleted and m.status.slurm is None
        return SetFinalizer(present=False) if may_go else Wait(seconds=RESYNC_SECONDS)
    verdict = read_verdict(m.status)
    if verdict is not None:
        return decide_release(facts, verdict, now)
    if not finalized and not deleted:
        return SetFinalizer(present=True)
    end = find_end(facts)
    if end is not None:
        return judged(m, *end, now)
    if facts.ahead is not None:
        return decide_behind(facts, now)
    unsaid: tuple[NodeCondition, ...] = ()
    if facts.node is not None and not _is_claimed_lately(m.status, now) and not facts.rests("Conditions", now):
        unsaid = turned(facts.node.body, mirrored(m.status))
    if unsaid:
        return SetNodeConditions(conditions=unsaid)
    return DECIDED_IN[m.status.phase or "Waiting"](facts, now)


def _is_claimed_lately(status: MaintenanceStatus, now: datetime) -> bool:
    """A claim is over in seconds: that it is planned was said while it waited, and what comes of it is said next."""
    since = phase_since(status) if status.phase == "Claiming" else None
    return since is not None and timedelta() <= now - since < timedelta(seconds=CLAIM_SECONDS)


def needs_look(facts: MaintenanceFacts) -> bool:
    """Whether what runs on the server matters to the next decision."""
    m = facts.maintenance
    if facts.ahead is not None or facts.pool is None or facts.server is None or read_verdict(m.status) is not None:
        return False
    if facts.wanted is not None and facts.wanted.awaits_turn and not facts.has_begun:
        return False
    return m.status.phase not in (*FINAL_PHASES, "Verifying")
