"""Why a server is not updated now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from provisioner.rollout.fleet import Occupancy

WaitReason = Literal[
    "Paused",
    "Halted",
    "Failures",
    "Window",
    "Canary",
    "Soak",
    "Wave",
    "Parallel",
    "Unavailable",
    "Domain",
    "Job",
    "Gang",
    "Excluded",
    "Down",
    "Failed",
    "Absent",
]


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason for programs, words for people. jobs: keys of those that the server waits for."""

    reason: WaitReason
    words: str
    jobs: tuple[str, ...] = ()


def wait_for_jobs(runs: Occupancy, widths: Mapping[str, int]) -> Wait:
    """It waits for what runs there; of those the widest is named."""
    widest = max(runs.jobs, key=lambda key: widths.get(key, 1))
    words = f"runs {widest}"
    if widths.get(widest, 1) > 1:
        words += f", which spans {widths[widest]} servers"
    if len(runs.jobs) > 1:
        words += f", and {len(runs.jobs) - 1} more"
    return Wait("Job", words, runs.jobs)
