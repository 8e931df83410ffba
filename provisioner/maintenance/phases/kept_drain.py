"""Our drain in Slurm outlives a Maintenance whose server may not be used: Slurm knows nothing of taints. Pure.

Kubernetes holds a Node out by the taint of the verification until the boot that runs is verified. Slurm would put jobs
there at once. So the drain stays, on record in status.slurm, until the server is verified, whoever brings that about.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from provisioner.api import NodePool, Server
from provisioner.api.machinery.conditions import condition_of, is_true, merge_conditions
from provisioner.api.machinery.meta import ConditionStatus
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, Maintenance, MaintenanceStatus, SlurmDrain
from provisioner.jobs.slurm.reservations import reservation_name
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import ReopenSlurm, Step, WriteStatus
from provisioner.maintenance.requests.effective import closing
from provisioner.maintenance.status.record import clip, next_step, note
from provisioner.rules.boot_order import is_ordered_boot
from provisioner.rules.nodes import NodeView
from provisioner.rules.pool_of_server import current_pool_name
from provisioner.rules.requests import merge

SLURM_DRAINED: Final = "SlurmDrained"


def why_unverified(server: Server | None, node: NodeView | None) -> str | None:
    """Why jobs may not come yet, in words; None if they may, or if nobody will ever verify it.

    A server that is gone and one that the provisioner never booted are not verified by anybody.
    """
    if server is None or server.status.order is None:
        return None
    order, checked = server.status.order, server.status.verification
    if node is None or node.boot_id is None:
        return f"Node '{server.name}' reports no boot"
    if not is_ordered_boot(server, node.boot_id):
        return f"boot order {order.id} has not joined as Node '{server.name}'"
    if checked is None or checked.boot_id.lower() != node.boot_id or not is_true(server.status.conditions, "Verified"):
        return f"boot {node.boot_id} is not verified"
    return None


def moved_to(facts: MaintenanceFacts) -> str | None:
    """The NodePool that the server is in by now, if our drain is in the Slurm of another one. One that was taken out of
    all pools is where its system was booted for."""
    drain, server = facts.maintenance.status.slurm, facts.server
    if drain is None or drain.node_pool_ref is None or server is None:
        return None
    named = current_pool_name(server) or server.status.node_pool_ref
    if named == drain.node_pool_ref or _same_slurm(facts.here, facts.drained_in):
        return None
    return named


def _same_slurm(pool: NodePool | None, other: NodePool | None) -> bool:
    """Whether a server is the same node of the same Slurm in both."""
    ours = pool.spec.jobs.slurm if pool is not None else None
    theirs = other.spec.jobs.slurm if other is not None else None
    if ours is None or theirs is None:
        return False
    return (ours.url.rstrip("/"), ours.node_name_prefix) == (theirs.url.rstrip("/"), theirs.node_name_prefix)


def may_reopen(facts: MaintenanceFacts) -> bool:
    """Whether our drain may be lifted, and there is a Slurm to ask. Where a server has left, jobs must not be placed:
    it is lifted once the server is back."""
    return has_slurm(facts.pool) and moved_to(facts) is None and why_unverified(facts.server, facts.node) is None


def reopen_step(drain: SlurmDrain) -> ReopenSlurm:
    """Undoes what is on record."""
    return ReopenSlurm(node=drain.node, reason=drain.reason, reserved=drain.reserved_time is not None)


def has_slurm(pool: NodePool | None) -> bool:
    return pool is not None and pool.spec.jobs.slurm is not None


def stays_drained(facts: MaintenanceFacts, status: MaintenanceStatus, now: datetime) -> MaintenanceStatus:
    """The status of a Maintenance that ends and whose drain stays: said in its record, its condition, its next step."""
    drain = status.slurm
    if drain is None:
        return next_step(status, None)
    name, pool, elsewhere = facts.server_name, drain.node_pool_ref, moved_to(facts)
    reason, ahead = "NotVerified", "the boot that runs there is verified"
    if elsewhere is not None:
        why = (
            f"Server '{name}' is in NodePool '{elsewhere}' now; it is reopened once the server is back in '{pool}', "
            "and verified"
        )
        reason, ahead = "Moved", f"the server is back in NodePool '{pool}'"
    elif not has_slurm(facts.pool):
        why = f"NodePool '{pool}' is gone, or names no Slurm; set it right, or: {_by_hand(facts, drain)}"
    else:
        why = (
            f"{why_unverified(facts.server, facts.node)}; it is reopened as soon as it is: kubectl provision retry "
            f"{name}, or kubectl provision release {name} --verification, or reboot it"
        )
    words = f"{drain.node} stays drained in Slurm ('{drain.reason}'): {why}"
    status = _say(note(status, now, "StaysDrained", words), facts, "True", reason, words, now)
    return next_step(status, f"is reopened in Slurm once {ahead}")


def decide_kept(facts: MaintenanceFacts, now: datetime) -> Step | None:
    """What to do about the drain that a Maintenance which has ended left; None: nothing now."""
    m = facts.maintenance
    drain = m.status.slurm
    if drain is None:
        return None
    ahead = facts.ahead
    if ahead is not None and facts.server is not None and closes(ahead, facts.pool):
        return None
    if may_reopen(facts):
        return reopen_step(drain)
    if m.metadata.deletion_timestamp is not None and (not has_slurm(facts.pool) or moved_to(facts) is not None):
        why = "there is nobody to ask any more" if not has_slurm(facts.pool) else "its server is in another NodePool"
        words = f"{why}, so it is nobody's to lift: {_by_hand(facts, drain)}"
        return WriteStatus(status=note(replace(m.status, slurm=None), now, "NotReopened", words))
    return None


def closes(ahead: Maintenance, pool: NodePool | None) -> bool:
    """Whether that Maintenance wants the server closed, too."""
    return ahead.status.phase in DISTURBING_PHASES or closing(merge(ahead), pool) == "NoSchedule"


def reopened(
    facts: MaintenanceFacts, node: str, lifted: bool, now: datetime, *, deleted: bool = False
) -> MaintenanceStatus:
    """The status once Slurm has answered. lifted: the drain; deleted: the reservation."""
    words = f"drain of {node} in Slurm lifted" if lifted else f"{node} in Slurm was not drained by us; left as it is"
    if deleted:
        words = f"reservation of {node} in Slurm deleted" + "; its drain lifted" * lifted
    status = facts.maintenance.status
    blockers = tuple(b for b in status.blockers if b.kind != "Slurm")
    status = note(replace(status, slurm=None, blockers=blockers), now, "Reopened", words)
    if any(c.type == SLURM_DRAINED for c in status.conditions):
        status = next_step(_say(status, facts, "False", "Reopened", words, now), None)
    return status


def _by_hand(facts: MaintenanceFacts, drain: SlurmDrain) -> str:
    words = f"scontrol update nodename={drain.node} state=resume"
    if drain.reserved_time is not None:
        words += f", scontrol delete reservation={reservation_name(facts.maintenance.name)}"
    return words


def _say(
    status: MaintenanceStatus, facts: MaintenanceFacts, holds: ConditionStatus, reason: str, words: str, now: datetime
) -> MaintenanceStatus:
    condition = condition_of(facts.maintenance, SLURM_DRAINED, holds, reason, clip(words), now)
    return replace(status, conditions=merge_conditions(status.conditions, condition))
