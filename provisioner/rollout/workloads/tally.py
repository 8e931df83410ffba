"""How many jobs have ended, and failed, on servers with the new image and with another one. Pure.

What is kept between two calls is two tallies and a moment: jobs are counted once their end lies between the moment of
the last call and that of this one, both in whole seconds. Thus it does not matter how many end in the same second, and
none is counted twice. Approximate is this: a job that becomes known later than `SETTLE` after its end is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from provisioner.api.pools.rollout_status import JobTally
from provisioner.jobs.model.ended import EndedJob
from provisioner.rollout.workloads.failed import FailedIf

SETTLE: Final = timedelta(seconds=15)
"""How long after its end a job is counted: until then Slurm and all caches tell of it. Sources keep it that long."""

NOTHING: Final = JobTally(ended=0, failed=0)


@dataclass(frozen=True, kw_only=True)
class Tallied:
    """counted: up to which end, that one included, jobs are counted. It never goes back.

    faults: how many jobs of this call the expression said nothing about; fault: the first of them, and why.
    """

    old: JobTally = NOTHING
    new: JobTally = NOTHING
    counted: datetime
    faults: int = 0
    fault: str | None = None


def tally(
    before: Tallied, jobs: Iterable[EndedJob], new_since: Mapping[str, datetime], failed_if: FailedIf, now: datetime
) -> Tallied:
    """Count jobs that have ended since `before`, at the begin of a rollout `Tallied(counted=began)`.

    new_since: servers of the pool in use with the new image, and since when. jobs: those that ended on servers of the
    pool; of one that is listed twice, one counts. Times have a zone.
    """
    upto = max(before.counted, (now - SETTLE).replace(microsecond=0))
    counts = {"old": before.old, "new": before.new}
    seen: set[tuple[str, str, datetime]] = set()
    faults, fault = 0, None
    for job in jobs:
        key = (job.kind, job.key, job.ended)
        image = image_of(job, new_since)
        if not before.counted < job.ended <= upto or image is None or key in seen:
            continue
        seen.add(key)
        outcome = failed_if(job)
        if outcome.fault is not None:
            faults += 1
            fault = fault or f"{job.kind} {job.name}: {outcome.fault}"
        last = counts[image]
        counts[image] = replace(last, ended=last.ended + 1, failed=last.failed + outcome.failed)
    return Tallied(old=counts["old"], new=counts["new"], counted=upto, faults=faults, fault=fault)


def image_of(job: EndedJob, new_since: Mapping[str, datetime]) -> Literal["old", "new"] | None:
    """Which image a job ran on; on the new one if any of its servers had that for all of the job's time.

    None if that is not known: one of its servers got the new image while the job ran, or may have. The job lost that
    server, or came to it later, and what became of it says nothing about either image; nor does one that ran on no
    server.
    """
    if job.began is not None and any(since <= job.began for since in _since(job, new_since)):
        return "new"
    if not job.servers or any(since < job.ended for since in _since(job, new_since)):
        return None
    return "old"


def _since(job: EndedJob, new_since: Mapping[str, datetime]) -> list[datetime]:
    return [new_since[server] for server in job.servers if server in new_since]
