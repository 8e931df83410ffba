"""What Slurm's answers mean for one node: which jobs are there, whether it is drained and by whom. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.jobs.model.work import EvictionBlocked, Job
from provisioner.jobs.slurm.hostlist import expand
from provisioner.jobs.slurm.objects import SlurmJob, SlurmNode

KILL_WAIT: Final = timedelta(seconds=35)
"""Slurm's default KillWait, and a little: so long the processes of requeued jobs may take, unseen by Slurm."""

_WORDS: Final = {
    "CONFIGURING": "is in its prolog",
    "COMPLETING": "is completing (its epilog included)",
    "SUSPENDED": "is suspended",
}
_NOTE: Final = re.compile(r"(; )?provisioner: (ends at \S+|requeued from \S+ at \S+)")
_REQUEUED: Final = re.compile(r"provisioner: requeued from (\S+) at ([0-9T:-]+Z)")


@dataclass(frozen=True)
class Unplaced:
    """A job whose hosts are not readable, and why: it may be on any node."""

    job: SlurmJob
    words: str


@dataclass(frozen=True)
class NodeJobs:
    """The jobs of one node. `unknown`: what does not add up, in words."""

    running: tuple[SlurmJob, ...]
    planned: tuple[SlurmJob, ...]
    unknown: tuple[str, ...]
    ending: tuple[EvictionBlocked, ...]
    """Those that we requeued, and whose processes may still be there."""


def jobs_of_node(node: SlurmNode, jobs: Collection[SlurmJob], now: datetime) -> NodeJobs:
    """What of `jobs`, which were read after `node`, is on it or shall start on it."""
    placed: list[SlurmJob] = []
    unplaced: list[Unplaced] = []
    for job in jobs:
        try:
            if job.is_placed_on(node.name):
                placed.append(job)
        except ValueError as error:
            unplaced.append(Unplaced(job, str(error)))
    return sort_jobs(node, placed, unplaced, held_by_kill_wait(node, jobs, now))


def sort_jobs(
    node: SlurmNode,
    placed: Iterable[SlurmJob],
    unplaced: Iterable[Unplaced],
    ending: tuple[EvictionBlocked, ...],
) -> NodeJobs:
    """`placed`: the jobs on `node`, and those that are planned to be; they were read after it."""
    running, planned = [], []
    for job in placed:
        if job.is_on_nodes:
            running.append(job)
        elif node.takes_jobs:
            # Slurm plans nothing on a drained node; what it planned before it looks at again.
            planned.append(job)
    unknown = [
        f"Slurm job {each.job.label} runs on hosts that are not readable: {each.words}"
        for each in unplaced
        if each.job.is_on_nodes or node.takes_jobs
    ]
    if node.is_busy and not running:
        unknown.append(
            f"Slurm says that node {node.name} is {node.state}, and shows no job there: a job just ended, or the user "
            "of spec.jobs.slurm.credentialsName may not see all jobs (PrivateData in slurm.conf)"
        )
    elif "PLANNED" in node.states and node.takes_jobs and not planned and not running:
        unknown.append(f"Slurm has planned a job on node {node.name}, and shows none: it just changed its mind")
    return NodeJobs(tuple(running), tuple(planned), tuple(unknown), ending)


def as_job(job: SlurmJob, prefix: str) -> Job:
    """For the executor; its servers are named as the Nodes are, without Slurm's `prefix`."""
    return Job(
        kind="SlurmJob",
        name=job.label,
        servers=tuple(sorted({name.removeprefix(prefix) for name in expand(job.places)})),
        message=describe(job),
        began=job.began,
        ends=job.ends,
        partition=job.partition or None,
        qos=job.qos or None,
    )


def describe(job: SlurmJob) -> str:
    """`Slurm job 4711 (train) of alice is completing (its epilog included)`."""
    words = next((_WORDS[state] for state in ("COMPLETING", "CONFIGURING", "SUSPENDED") if state in job.states), None)
    if words is None:
        words = "is planned to start here" if not job.is_on_nodes else f"is {job.state.lower()}"
    name = f" ({job.name})" if job.name else ""
    where = f" on {job.nodes}" if job.nodes and ("[" in job.nodes or "," in job.nodes) else ""
    return f"Slurm job {job.label}{name} of {job.user} {words}{where}"


def held_by_kill_wait(node: SlurmNode, jobs: Iterable[SlurmJob], now: datetime) -> tuple[EvictionBlocked, ...]:
    """Jobs that we requeued off `node`: Slurm does not look whether their processes there have ended."""
    held = []
    for job in jobs:
        noted = _REQUEUED.search(job.admin_comment)
        if noted is None or noted.group(1) != node.name:
            continue
        try:
            until = parse_time(noted.group(2)) + KILL_WAIT
        except ValueError:
            continue  # somebody else's words: the comment is anybody's who may write to Slurm
        if now < until:
            message = f"Slurm job {job.label} was requeued; its processes may take until {rfc3339(until)} to end here"
            held.append(EvictionBlocked(kind="SlurmJob", name=job.label, message=message))
    return tuple(held)


def requeued_from(job: SlurmJob) -> str | None:
    """The node from which we requeued it, by its comment."""
    noted = _REQUEUED.search(job.admin_comment)
    return noted.group(1) if noted is not None else None


def warned(job: SlurmJob, deadline: datetime) -> bool:
    """Whether its comment says that it was told of `deadline`."""
    return f"provisioner: ends at {rfc3339(deadline)}" in job.admin_comment


def with_warning(job: SlurmJob, deadline: datetime) -> str:
    """Its administrator's comment, with the deadline; what others wrote there stays."""
    return _with_note(job, f"ends at {rfc3339(deadline)}")


def with_requeue(job: SlurmJob, node: str, now: datetime) -> str:
    """Its administrator's comment, with from where it is requeued, and when."""
    return _with_note(job, f"requeued from {node} at {rfc3339(now)}")


def _with_note(job: SlurmJob, note: str) -> str:
    others = _NOTE.sub("", job.admin_comment)
    return f"{others}; " * bool(others) + f"provisioner: {note}"
