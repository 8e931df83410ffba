"""A server is closed to new jobs while running ones end, where its pool or a requestor's turn wants it so. Pure.

Closed: the taint NoSchedule, and a drain in Slurm. Steered: the taint PreferNoSchedule alone; Slurm has no such thing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from provisioner.api.maintenance import SlurmDrain
from provisioner.api.node_contract import MaintenanceEffect
from provisioner.maintenance.facts import MaintenanceFacts, close_reason, taint_value
from provisioner.maintenance.phases.blocking import obstacles
from provisioner.maintenance.phases.kept_drain import closes, may_reopen
from provisioner.maintenance.requests.effective import closing
from provisioner.maintenance.status.record import last_noted
from provisioner.maintenance.steps import CloseSlurm, ReopenSlurm, SetTaint, Step, WriteStatus


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
        return None if _is_closed(facts) else record_drain(facts) or CloseSlurm(reason=close_reason(m.name))
    return _reopen(facts)


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
    """The drain in Slurm that a claim makes; None without Slurm."""
    slurm = facts.pool.spec.jobs.slurm if facts.pool is not None else None
    if facts.pool is None or slurm is None:
        return None
    node = f"{slurm.node_name_prefix}{facts.server_name}"
    return SlurmDrain(node=node, reason=close_reason(facts.maintenance.name), node_pool_ref=facts.pool.name)


def _reopen(facts: MaintenanceFacts) -> ReopenSlurm | None:
    """Lift what was drained while it waited. Where somebody else had drained it, asking that of Slurm puts on record
    that it is closed no longer."""
    drain = facts.maintenance.status.slurm or (intended_drain(facts) if _is_closed(facts) else None)
    return ReopenSlurm(node=drain.node, reason=drain.reason) if drain is not None and may_reopen(facts) else None


def _is_closed(facts: MaintenanceFacts) -> bool:
    """Whether Slurm was told since it waits, and not told otherwise since."""
    return last_noted(facts.maintenance.status, ("Closed", "Reopened"), phase="Waiting") == "Closed"
