"""Slurm's jobs that are over, as long as it remembers them (MinJobAge in slurm.conf, 300 s unless it is set). Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from provisioner.jobs.ended import EndedJob
from provisioner.jobs.slurm.hostlist import count, expand
from provisioner.jobs.slurm.objects import MAX_PLACES, SlurmJob

_NAME_LETTERS: Final = 256
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def places_of(job: SlurmJob) -> int:
    """On how many nodes it ran; 0 if it did not run, is not over, or its nodes are not readable."""
    try:
        return count(job.nodes) if job.outcome is not None and job.end is not None else 0
    except ValueError:
        return 0


def last_ended(counted: Iterable[tuple[SlurmJob, int]], most: int = MAX_PLACES) -> tuple[SlurmJob, ...]:
    """Of jobs with their `places_of` those that ran and are over, the last first: as many as ran on no more than `most`
    nodes, each counted for each job."""
    over = sorted((each for each in counted if each[1]), key=lambda each: each[0].end or _LONG_AGO, reverse=True)
    sums = itertools.accumulate(places for _, places in over)
    return tuple(job for (job, _), places in zip(over, sums, strict=True) if places <= most)


def as_ended(job: SlurmJob, prefix: str) -> EndedJob:
    """`job`: one of `last_ended`. Its servers are named as the Nodes are, without Slurm's `prefix`."""
    return EndedJob(
        kind="SlurmJob",
        key=f"Slurm job {job.id}",
        name=job.name[:_NAME_LETTERS] or job.label,
        servers=tuple(sorted({name.removeprefix(prefix) for name in expand(job.nodes)})),
        began=job.start,
        ended=job.end or _LONG_AGO,
        succeeded=job.outcome == "COMPLETED",
        reason=job.outcome or "",
        exit_code=job.exit_code,
        signal=job.signal,
        partition=job.partition or None,
        qos=job.qos or None,
    )
