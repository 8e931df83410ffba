"""What is done in Slurm, each with the look that says what came of it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final, get_args

import structlog

from provisioner.api.pools.pool_settings import SlurmJobs, WarningSignal
from provisioner.jobs.model.work import NotReserved
from provisioner.jobs.slurm.answers import PERSON_SECONDS, SlurmFailed, SlurmNoAnswer
from provisioner.jobs.slurm.jobs import NodeJobs, with_requeue, with_warning
from provisioner.jobs.slurm.objects import SlurmJob, SlurmNode, SlurmReservation
from provisioner.jobs.slurm.reservations import begin_no_sooner, find_reservation, is_as_wanted, reservation_body
from provisioner.jobs.slurm.rest import SlurmRest

log = structlog.get_logger()

SIGNALS: Final = frozenset(get_args(WarningSignal))


def end_jobs(rest: SlurmRest, node: SlurmNode, found: NodeJobs, now: datetime) -> bool:
    """Requeue or cancel; whether anything was asked for.

    slurmrestd has no requeue. Slurm requeues the jobs of a node that is set DOWN, those that allow it; the others are
    cancelled before. Somebody else's drained node keeps its state, so that its jobs are all cancelled.
    """
    running = [job for job in found.running if not job.is_completing]
    requeued = [job for job in running if job.is_batch and job.may_requeue] if node.is_ours else []
    cancelled = [job for job in running if job not in requeued]
    for job in cancelled:
        rest.cancel_job(job)
        log.info("slurm job was cancelled", job=job.label, node=node.name)
    if requeued and len(requeued) == len(found.running):
        for job in requeued:
            rest.comment_job(job, with_requeue(job, node.name, now))
        after = update_node(rest, node.name, "DOWN", node.reason)
        log.info("slurm node was set down", node=node.name, state=after.state, jobs=[job.label for job in requeued])
        return True
    return bool(cancelled)


def warn_job(rest: SlurmRest, job: SlurmJob, deadline: datetime, signal: str | None) -> bool:
    try:
        # First the signal: a job that gets it twice checkpoints twice, one that never gets it is lost.
        signalled = signal is not None and rest.signal_job(job, signal)
        rest.comment_job(job, with_warning(job, deadline))
    except SlurmFailed as error:
        log.warning("slurm job was not warned", job=job.label, error=str(error))
        return False
    log.info("slurm job was warned", job=job.label, signal=signal if signalled else None)
    return True


def update_node(rest: SlurmRest, name: str, state: str, reason: str | None) -> SlurmNode:
    """The node after the update, whatever the answer to it was. Raises: SlurmFailed if Slurm refused it."""
    refused = _refusal(lambda: rest.update_node(name, state, reason))
    after = require_node(rest.node(name), name)
    happened = {"DRAIN": after.is_drained, "DOWN": "DOWN" in after.states, "RESUME": after.takes_jobs}[state]
    if refused is not None and not happened:
        raise refused
    return after


def _refusal(act: Callable[[], None]) -> SlurmFailed | None:
    """Why Slurm did not do it, as it says; what came of it, a look afterwards tells."""
    try:
        act()
    except SlurmFailed as error:
        return error
    return None


def require_node(node: SlurmNode | None, name: str) -> SlurmNode:
    if node is None:
        raise SlurmFailed(
            f"Slurm has no node {name}: add it to slurm.conf, correct spec.jobs.slurm.nodeNamePrefix of the pool, or "
            "remove spec.jobs.slurm",
            after_seconds=60.0,
        )
    return node


def reserve_node(rest: SlurmRest, name: str, node: str, begins: datetime, now: datetime) -> SlurmReservation:
    """The reservation after it was made, moved, or found as it shall be. Raises: NotReserved if Slurm does not do it,
    SlurmFailed if it does not answer."""
    begins = begin_no_sooner(begins, now)
    before = find_reservation(rest.reservations(), name)
    if before is not None and before.nodes != node:
        raise NotReserved(
            f"Slurm's reservation {name} is of {before.nodes or 'no node'}, not of {node}: delete it if nobody needs "
            f"it (scontrol delete reservation={name})",
            after_seconds=PERSON_SECONDS,
        )
    if before is not None and is_as_wanted(before, begins, now):
        return before
    refused = _refusal(lambda: rest.set_reservation(reservation_body(before, name, node, begins)))
    after = find_reservation(rest.reservations(), name)
    if after is None or after.nodes != node or not is_as_wanted(after, begins, now):
        if isinstance(refused, SlurmNoAnswer):
            raise refused
        words = str(refused or f"Slurm has made no reservation {name} of {node}")
        raise NotReserved(words, after_seconds=5.0) from refused
    log.info("slurm node was reserved", node=node, reservation=name, begins=after.begins)
    return after


def delete_reservation(rest: SlurmRest, name: str, node: str) -> bool:
    """Delete it if it is of `node` alone; whether there was one. Raises: SlurmFailed if it is still there."""
    before = find_reservation(rest.reservations(), name)
    if before is None or before.nodes != node:
        return False
    if not rest.reserves:
        raise SlurmFailed(
            f"slurmrestd cannot delete Slurm's reservation {name} of {node}: scontrol delete reservation={name}",
            after_seconds=PERSON_SECONDS,
        )
    refused = _refusal(lambda: rest.delete_reservation(name))
    if find_reservation(rest.reservations(), name) is not None:
        raise refused or SlurmFailed(f"Slurm has not deleted reservation {name}", after_seconds=5.0)
    log.info("slurm node is no longer reserved", node=node, reservation=name)
    return True


def signal_of(settings: SlurmJobs) -> str | None:
    signal = settings.signal
    if signal is not None and signal not in SIGNALS:
        # slurmrestd takes an unknown name for a request to cancel.
        known = ", ".join(sorted(SIGNALS))
        message = f"spec.jobs.slurm.signal is {signal!r}, no signal that warns a job: use one of {known}"
        raise SlurmFailed(message, after_seconds=60.0)
    return signal
