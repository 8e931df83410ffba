"""Undoing what was done, in an order in which a crash at any point is harmless, and writing the end. Pure.

First what the agent was told (a cancelled drain must not reboot later), then taint and Slurm, then the answers on the
Node, the phase last: it frees the slot of the budget. Slurm alone stays drained while the server is not verified.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final, get_args

from provisioner.api.machinery.meta import parse_time, rfc3339_micro
from provisioner.api.nodes.maintenance import (
    SUCCEEDED,
    Maintenance,
    MaintenancePhase,
    MaintenanceStatus,
    Requestor,
)
from provisioner.cluster.source import conditions_of
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import (
    SetIntent,
    SetNodeConditions,
    SetTaint,
    Step,
    Wait,
    WriteStatus,
    node_write_of,
)
from provisioner.maintenance.phases.closing import closing_effect, intended_drain
from provisioner.maintenance.phases.kept_drain import may_reopen, reopen_step, stays_drained
from provisioner.maintenance.requests.request import CONDITION_OF, read_requests
from provisioner.maintenance.status.node_status import NodeCondition, missing, none_planned
from provisioner.maintenance.status.record import next_step, note, noted, set_blockers, with_conditions
from provisioner.maintenance.status.verdict import Verdict
from provisioner.rules.nodes import NodeView, ObservedCondition, taint_value
from provisioner.rules.requests import answered_until

_PHASES: Final = frozenset(get_args(MaintenancePhase))


def decide_release(facts: MaintenanceFacts, verdict: Verdict, now: datetime) -> Step:
    """The next thing to undo; when nothing is left, the end.

    What the API server does not let us write to the Node for long is left, and cleared away later: the slot of the
    budget is not held for it. That of a server whose agent was told to reboot is: it may do so at any moment.
    """
    was_told = facts.node is not None and facts.node.has_intent and not _is_staging(facts.node)
    for step in (*_undo(facts, verdict), *_answer(facts, verdict)):
        write = node_write_of(step)
        refusal = facts.refused.get(write) if write is not None else None
        if refusal is None or not (refusal.rests(now) or refusal.lasts(now)):
            return step
        if refusal.lasts(now) and (write == "Conditions" or not was_told):
            continue
        words = f"Node '{facts.server_name}' cannot be released, the API server refuses it: {refusal.words}"
        status = set_blockers(facts.maintenance.status, [("Node", facts.server_name, words)], now)
        if status != facts.maintenance.status:
            return WriteStatus(status=status)
        return Wait(seconds=refusal.rest_seconds(now)) if refusal.rests(now) else step
    return WriteStatus(status=_ended(facts, verdict, now))


def find_leftover(node: NodeView, *, keeps_taint: bool = False) -> SetIntent | SetTaint | SetNodeConditions | None:
    """The next thing to clear away: first what the agent might still obey.

    keeps_taint: the taint stays, as the only record of what is to be lifted in Slurm later. Conditions of these names
    are not ours alone: those are taken back whose reason is a phase of a Maintenance. Another tool may use that word.
    """
    if node.has_intent:
        return SetIntent(intent=None)
    if node.taint is not None and not keeps_taint:
        return SetTaint(value=None)
    unsaid = missing(node.body, none_planned("NoMaintenance", "no Maintenance is planned"))
    conditions = conditions_of(node.body)
    there = {c.get("type") for c in conditions if c.get("status") == "True" and c.get("reason") in _PHASES}
    said = tuple(c for c in unsaid if c.type in there)
    return SetNodeConditions(conditions=said) if said else None


def _undo(facts: MaintenanceFacts, verdict: Verdict) -> Iterator[Step]:
    node, pool, status = facts.node, facts.pool, facts.maintenance.status
    if facts.ahead is not None:
        return  # the server is another Maintenance's
    effect = closing_effect(facts) if verdict.phase == "Waiting" else None
    stays_closed = effect == "NoSchedule"
    if node is not None and node.taint is not None and not stays_closed:
        steers = effect is not None and node.taint == taint_value(facts.maintenance.name)
        if not steers:
            yield SetTaint(value=None)  # and with it what the agent was told
        elif node.taint_effect != effect:
            yield SetTaint(value=node.taint, effect=effect or "NoSchedule")
    if node is not None and node.has_intent:
        yield SetIntent(intent=None)
    if stays_closed or pool is None or pool.spec.jobs.slurm is None or not may_reopen(facts):
        return
    if status.slurm is None and noted(status, "Reopened") is not None:
        return
    # Also where no drain is on record: the crash may have come between the drain and the record of it.
    was_closed = status.slurm is not None or status.claimed_time is not None or noted(status, "Closed") is not None
    if not was_closed:
        return
    drain = status.slurm or intended_drain(facts)
    if drain is not None:
        yield reopen_step(drain)


def _answer(facts: MaintenanceFacts, verdict: Verdict) -> Iterator[Step]:
    """The requests that were answered are set False, with what came of them; those of a later moment stay."""
    if facts.node is None or verdict.phase == "Waiting":
        return
    asked = read_requests(facts.node)
    answers = []
    for requestor in facts.maintenance.spec.requestors:
        found = asked.get(CONDITION_OF.get(requestor.name, ""))
        if found is None or _is_asked_anew(found, requestor, facts.maintenance, verdict):
            continue
        words = f"Maintenance {facts.maintenance.name}: {verdict.message}"
        answers.append(
            NodeCondition(type=found.type, status="False", reason=verdict.phase, message=words, time=verdict.time)
        )
    if facts.ahead is None:
        words = f"Maintenance {facts.maintenance.name} has ended: {verdict.phase} ({verdict.cause})"
        answers += missing(facts.node.body, none_planned(verdict.phase, words))
    if answers:
        yield SetNodeConditions(conditions=tuple(answers))


def _is_staging(node: NodeView) -> bool:
    return node.intent is not None and node.intent.action == "Stage"


def _is_asked_anew(found: ObservedCondition, requestor: Requestor, maintenance: Maintenance, verdict: Verdict) -> bool:
    """Whether the condition was set again since what is answered now: since the verdict, or since the boot began, if it
    asks for more than that boot brings. Its time has whole seconds: in the verdict's own second it is a new request if
    it is later than the one that was taken in."""
    decided = parse_time(verdict.time)
    if found.time is None or requestor.requested_time is None:
        return found.time is not None and found.time > decided
    until = answered_until(requestor.action, maintenance.status.reboot, decided)
    is_later = found.time > parse_time(requestor.requested_time)
    return is_later and (found.time > until or found.time == decided)


def _ended(facts: MaintenanceFacts, verdict: Verdict, now: datetime) -> MaintenanceStatus:
    m, status = facts.maintenance, facts.maintenance.status
    if verdict.phase == "Waiting":
        status = replace(
            status,
            conditions=tuple(c for c in status.conditions if c.type != SUCCEEDED),
            node_uid=None,
            boot_id_before=None,
            claimed_time=None,
            drained_time=None,
            reboot=None,
        )
        status = note(status, now, verdict.cause, "released; waits again", phase="Waiting")
        return with_conditions(m, next_step(status, "is claimed when nothing stands in the way any more"), now)
    status = replace(status, finished_time=rfc3339_micro(now), blockers=())
    status = note(status, now, verdict.phase, f"{verdict.cause}: {verdict.message}", phase=verdict.phase)
    return with_conditions(m, stays_drained(facts, status, now), now)
