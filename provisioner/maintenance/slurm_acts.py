"""What the executor does in Slurm about the node of a server, and the status that says what came of it.

Each may be done again: what is there as it shall be is left so, and what is undone is only our own.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from provisioner.api import NodePool, Server
from provisioner.api.nodes.maintenance import MaintenanceStatus
from provisioner.jobs.model.work import NotReserved, Workloads
from provisioner.maintenance.model.facts import MaintenanceFacts, close_reason
from provisioner.maintenance.model.steps import CloseSlurm, ReopenSlurm, ReserveSlurm
from provisioner.maintenance.phases.claiming import closed, not_reserved, reserved
from provisioner.maintenance.phases.kept_drain import reopened
from provisioner.rules.nodes import taint_value


def act_in_slurm(
    workloads: Workloads,
    facts: MaintenanceFacts,
    step: CloseSlurm | ReserveSlurm | ReopenSlurm,
    clock: Callable[[], datetime],
) -> MaintenanceStatus | None:
    """Do it; the status that is to be written then. None where nobody can be asked. Raises: Retryable."""
    server, pool, name = facts.server, facts.pool, facts.maintenance.name
    if pool is None:
        return None
    match step:
        case CloseSlurm() if server is not None:
            return closed(facts, workloads.close(server, pool, step.reason), clock())
        case ReserveSlurm() if server is not None:
            why = None
            try:
                found = workloads.reserve(server, pool, name, step.begins)
            except NotReserved as error:
                found, why = None, str(error)
            if found is None:
                return not_reserved(facts, workloads.close(server, pool, close_reason(name)), why, clock())
            workloads.reopen(found.node, close_reason(name), pool)
            return reserved(facts, found, step.begins, clock())
        case ReopenSlurm():
            # First the one that may fail for want of a slurmrestd that deletes: meanwhile the drain says whose it is.
            deleted = step.reserved and workloads.unreserve(step.node, name, pool)
            lifted = workloads.reopen(step.node, step.reason, pool)
            return reopened(facts, step.node, lifted, clock(), deleted=deleted)
    return None


def clear_slurm(workloads: Workloads, server: Server, pool: NodePool, taint: str) -> None:
    """Lift and delete what a Maintenance that is gone has left; the taint may bear only the end of its name. Raises:
    Retryable."""
    for left in workloads.reserved(pool, [server.name]):
        if taint_value(left.maintenance) == taint:
            workloads.unreserve(left.node, left.maintenance, pool)
    reason = workloads.look(server, pool, fresh=True).slurm_reason or ""
    if reason.startswith(close_reason("")) and taint_value(reason.removeprefix(close_reason(""))) == taint:
        prefix = pool.spec.jobs.slurm.node_name_prefix if pool.spec.jobs.slurm is not None else ""
        workloads.reopen(f"{prefix}{server.name}", reason, pool)
