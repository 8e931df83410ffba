"""Why a server is not updated now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    "Excluded",
    "Down",
]


@dataclass(frozen=True, slots=True)
class Wait:
    """A reason for programs, words for people. jobs: keys of those that the server waits for."""

    reason: WaitReason
    words: str
    jobs: tuple[str, ...] = ()
