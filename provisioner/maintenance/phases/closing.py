"""A server is closed to new jobs while running ones end, where its pool or a requestor's turn wants it so. Pure.

Closed: the taint NoSchedule, and a drain in Slurm; up to the turn's closing time, where Slurm can, a reservation that
begins then, in place of the drain. Steered: the taint PreferNoSchedule alone; Slurm has no such thing.

A reservation is put on record before it is made, as a drain is. It stays while the server is drained, after its begin
or for a claim, and is deleted when that drain is lifted.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import MaintenanceEffect
from provisioner.api.nodes.maintenance import SlurmDrain, TimelineEntry
from provisioner.maintenance.model.facts import MaintenanceFacts, close_reason
from provisioner.maintenance.model.steps import CloseSlurm, ReopenSlurm, ReserveSlurm, SetTaint, Step, WriteStatus
from provisioner.maintenance.phases.blocking import obstacles
from provisioner.maintenance.phases.kept_drain import closes, may_reopen, reopen_step
from provisioner.maintenance.requests.effective import closing, closing_moment
from provisioner.maintenance.status.record import last_noted
from provisioner.rules.nodes import taint_value

LONGEST: Final = timedelta(days=400)
"""A server that shall close later is drained at once."""
_CLOSED: Final = ("Closed", "NotReserved", "Reserved")
"""Reasons in the record: drained; drained because it is not reserved; reserved."""


def closing_effect(facts: MaintenanceFacts) -> MaintenanceEffect | None:
    """How the server is closed while the Maintenance waits: not at all while it could not be claimed anyway."""
    return None if obstacles(facts) else closing(facts.wanted, facts.pool)


def close_or_open(facts: MaintenanceFacts, now: datetime) -> Step | None:
    """The next thing that brings Node and Slurm to how the server is to be closed; None if they are."""
    node, m = facts.node, facts.maintenance
    if node is None:
        return None
    effect = closing_effect(facts)
    is_right = node.taint is None if effect is None else node.is_tainted(m.name, effect)
    if not is_right and not facts.rests("Taint", now):
        return SetTaint(value=None) if effect is None else SetTaint(value=taint_value(m.name), effect=effect)
    if effect == "NoSchedule":
        begins = reservation_begin(facts, now)
        return _drain(facts) if begins is None else _reserve(facts, begins)
    return _reopen(facts)


def reservation_begin(facts: MaintenanceFacts, now: datetime) -> datetime | None:
    """From when on it is to be reserved in Slurm instead of drained; None once that moment has come, and where a drain
    has to stay."""
    moment = closing_moment(facts.wanted, facts.pool)
    if moment is None or not timedelta() < moment - now <= LONGEST:
        return None
    return moment if may_reopen(facts) else None


def _drain(facts: MaintenanceFacts) -> Step | None:
    last = _last_closed(facts)
    if last is not None and last.reason in ("Closed", "NotReserved"):
        return None
    return record_drain(facts) or CloseSlurm(reason=close_reason(facts.maintenance.name))


def _reserve(facts: MaintenanceFacts, begins: datetime) -> Step | None:
    """A Slurm that does not reserve it is not asked again for another moment."""
    last, moment = _last_closed(facts), rfc3339(begins)
    if last is not None and (last.reason == "NotReserved" or (last.reason == "Reserved" and moment in last.about)):
        return None
    status, drain = facts.maintenance.status, intended_drain(facts)
    if drain is None:
        return None
    intended = replace(drain, reserved_time=moment)
    if status.slurm != intended:
        return WriteStatus(status=replace(status, slurm=intended))
    return ReserveSlurm(begins=begins)


def open_behind(facts: MaintenanceFacts) -> ReopenSlurm | None:
    """Lift a drain of one's own that the Maintenance which holds the server does not want; the taint is that one's."""
    ahead = facts.ahead
    if ahead is None or closes(ahead, facts.pool) or facts.maintenance.status.phase != "Waiting":
        return None
    return _reopen(facts)


def record_drain(facts: MaintenanceFacts) -> WriteStatus | None:
    """Puts on record what is about to be drained, before it is; None if it is there, or there is no Slurm."""
    status, intended = facts.maintenance.status, intended_drain(facts)
    if intended is None or status.slurm == intended:
        return None
    return WriteStatus(status=replace(status, slurm=intended))


def intended_drain(facts: MaintenanceFacts) -> SlurmDrain | None:
    """The drain in Slurm that a claim makes, beside the reservation that is there; None without Slurm."""
    slurm = facts.pool.spec.jobs.slurm if facts.pool is not None else None
    held = facts.maintenance.status.slurm
    reserved = held.reserved_time if held is not None else None
    if facts.pool is None or slurm is None:
        return held if reserved is not None else None
    node = f"{slurm.node_name_prefix}{facts.server_name}"
    reason = close_reason(facts.maintenance.name)
    return SlurmDrain(node=node, reason=reason, node_pool_ref=facts.pool.name, reserved_time=reserved)


def _reopen(facts: MaintenanceFacts) -> ReopenSlurm | None:
    """Lift what was drained while it waited. Where somebody else had drained it, asking that of Slurm puts on record
    that it is closed no longer."""
    drain = facts.maintenance.status.slurm or (intended_drain(facts) if _last_closed(facts) is not None else None)
    return reopen_step(drain) if drain is not None and may_reopen(facts) else None


def _last_closed(facts: MaintenanceFacts) -> TimelineEntry | None:
    """What Slurm was told last since it waits, unless it was told otherwise since."""
    last = last_noted(facts.maintenance.status, (*_CLOSED, "Reopened"), phase="Waiting")
    return last if last is not None and last.reason in _CLOSED else None
