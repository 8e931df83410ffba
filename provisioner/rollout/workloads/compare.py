"""Whether jobs fail on the new image so much more than on the old one that a rollout has to stop. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.rollout_status import JobTally
from provisioner.api.pools.upgrade_strategy import WorkloadGate
from provisioner.rollout.workloads.evidence import least_difference

PRESUMED_AT_MOST: Final = 0.5
"""What the failure rate on the old image is presumed not to exceed, until more than that of its jobs have failed."""


@dataclass(frozen=True, kw_only=True)
class WorkloadVerdict:
    """TooFew: a stage is not over yet. Bad: the rollout stops. words: the counts and what they say, for people."""

    name: Literal["Good", "TooFew", "Bad"]
    words: str


def compare(old: JobTally, new: JobTally, gate: WorkloadGate, *, running: int) -> WorkloadVerdict:
    """Compare jobs that have ended on the new image with those on the old one.

    running: jobs that run on servers with the new image now. They count as not failed until they end: what fails at
    once ends before what succeeds, so that the first jobs to end on an image are the worst of it.

    Bad only if the difference exceeds the tolerance with the gate's confidence: if jobs fail independently, and at most
    half of them on the old image, a rollout whose new image is within the tolerance is stopped with a probability of at
    most 1 - confidence, however often it is looked at. Where nothing is known of the old image, that half is all that
    is presumed: a few failures conclude nothing, but where 8 of 8 jobs fail the rollout stops (at 95 % and 5 points).
    """
    begun = JobTally(ended=new.ended + running, failed=new.failed)
    presumed = old.failed <= PRESUMED_AT_MOST * old.ended
    least = 100 * least_difference(
        old, begun, gate.confidence_percent / 100, old_at_most=PRESUMED_AT_MOST if presumed else 1.0
    )
    others = f", where {quantity(running, 'more runs', 'more run')}" if running else ""
    counts = f"{_counted(new)} on the new image{others}, {_counted_old(old)}"
    if least > gate.tolerance_percent:
        return WorkloadVerdict(name="Bad", words=f"{counts}: {_difference(least, gate)}")
    missing = gate.minimum_jobs - new.ended
    if missing > 0:
        return WorkloadVerdict(name="TooFew", words=f"{counts}: {missing} more must end on the new image")
    return WorkloadVerdict(name="Good", words=f"{counts}: {_difference(least, gate)}")


def _difference(least: float, gate: WorkloadGate) -> str:
    tolerated = f"{gate.tolerance_percent} are tolerated"
    if least <= 0:
        return f"that more fail is not certain (at {gate.confidence_percent} %), {tolerated}"
    return f"at least {least:.1f} percentage points more with {gate.confidence_percent} % certainty, {tolerated}"


def _counted(tally: JobTally) -> str:
    if not tally.ended:
        return "no job has ended"
    return f"{tally.failed} of {tally.ended} jobs ({_percent(tally)}) failed"


def _counted_old(tally: JobTally) -> str:
    if not tally.ended:
        return "none has ended on the old one, of which half are presumed to fail at most"
    return f"{tally.failed} of {tally.ended} ({_percent(tally)}) on the old one"


def _percent(tally: JobTally) -> str:
    return f"{100 * tally.failed / tally.ended:.3g} %"
