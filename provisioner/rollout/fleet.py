"""What the planner knows of a pool: its servers and what runs on them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

MemberState = Literal["Updated", "Updating", "Failed", "Outdated", "Down", "Absent"]
"""Updated: in use with the wanted image. Updating: on its way there by this rollout. Failed: it did not get there, or
not for long. Outdated: in use with another image. Down: out of use by no doing of this rollout. Absent: it has no Node,
and boots the right image when it boots."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One server of the pool.

    jobs: keys of the jobs that run on it. free: share of it on which nothing runs, from 0 to 1.
    since: since when it is Updated. closed_since: since when new jobs are kept from it for the rollout.
    domains: name of its failure domain for each key of `UpgradeStrategy.domains`.
    excluded: why a person wants it left alone.
    """

    name: str
    state: MemberState
    jobs: tuple[str, ...] = ()
    free: float = 1.0
    since: datetime | None = None
    closed_since: datetime | None = None
    domains: tuple[str | None, ...] = ()
    excluded: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunningJob:
    """A job, a gang as one. members: the servers that it runs on. began: when it began to run there.

    ends: by when it has ended, where that is known.
    """

    members: tuple[str, ...]
    began: datetime | None = None
    ends: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A pool at one moment.

    jobs: those of all members, by key. halted: in words, why nothing may go on (an image that is not there, a bad
    comparison); None if nothing stands in the way. attempt: how long a server is out of use for the new image.
    """

    members: Sequence[Member]
    jobs: Mapping[str, RunningJob] = field(default_factory=dict)
    halted: str | None = None
    attempt: timedelta = timedelta(minutes=10)
