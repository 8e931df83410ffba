"""Why a server is not updated now, and what is left of a rollout that is complete. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

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
    "Held",
    "Excluded",
    "Once",
    "Architecture",
    "Down",
    "Failed",
    "Absent",
]
WAIT_WORDS: Final[Mapping[str, str]] = {
    "Paused": "until somebody resumes it",
    "Halted": "until nothing stops the rollout",
    "Failures": "until a person decides what to do about those that failed",
    "Window": "for a maintenance window",
    "Canary": "for the canary",
    "Soak": "for the soak of those that went before",
    "Wave": "for an earlier wave",
    "Parallel": "for those on their way (maxParallel)",
    "Unavailable": "until fewer are out of use (maxUnavailable)",
    "Domain": "until fewer of the failure domain are out of use",
    "Job": "for jobs to end",
    "Gang": "for a job that spans too many servers to be ended",
    "Held": "held by a person",
    "Excluded": "excluded from rollouts (spec.upgrades)",
    "Once": "reimaged by a person since the rollout began",
    "Architecture": "of another architecture than the image",
    "Down": "out of use",
    "Failed": "failed, until a person decides",
    "Absent": "not joined: the next boot brings the image",
}
"""What follows the number of servers, by the reason."""
_NAMES: Final = 3


@dataclass(frozen=True, slots=True)
class MemberWait:
    """A reason for programs, words for people. jobs: keys of those that the server waits for."""

    reason: WaitReason
    words: str
    jobs: tuple[str, ...] = ()


def but_for(words: str, left: Mapping[str, MemberWait]) -> str:
    """`words`, and the servers that a complete rollout leaves, if there are any."""
    return f"{words}, but for {count_left(left)}" if left else words


def count_left(left: Mapping[str, MemberWait]) -> str:
    """Servers by their reason, the first of each by name: `1 held by a person (r01-u07), 2 out of use (r02-u01, …)`."""
    by_reason: defaultdict[WaitReason, list[str]] = defaultdict(list)
    for name, wait in left.items():
        by_reason[wait.reason].append(name)
    return ", ".join(
        f"{len(names)} {WAIT_WORDS[reason]} ({', '.join(sorted(names)[:_NAMES])}{', …' * (len(names) > _NAMES)})"
        for reason, names in sorted(by_reason.items())
    )
