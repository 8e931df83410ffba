"""What the planner knows of a pool: its servers and what runs on them. Pure.

Times are seconds since the epoch: a decision compares tens of thousands of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from provisioner.rollout.wait import MemberWait

MemberState = Literal["Updated", "Updating", "Failed", "Outdated", "Down", "Absent"]
"""Updated: in use with the wanted image. Updating: on its way there by this rollout. Failed: it did not get there, or
was there and is out of use. Outdated: in use with another image. Down: out of use with another image, by no doing of
this rollout. Absent: it has not joined."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Occupancy:
    """The jobs that run on a server, by key. free: share of it on which nothing runs, from 0 to 1.

    first: when the first of the jobs began to run there. ends: by when all of them have ended. Each None if that is not
    known of one of them. begun_ends: as ends, without those that Slurm only plans to start there; 0 if none has begun.
    interruptible: from when each of them may be ended for the rollout (`may_be_ended_from`); None if one of them never
    may.
    """

    jobs: tuple[str, ...]
    free: float = 0.0
    first: float | None = None
    ends: float | None = None
    begun_ends: float | None = None
    interruptible: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One server of the pool.

    runs: what runs on it; None if it is idle. since: since when it is Updated; None means just now. closed: whether new
    jobs are kept from it for the rollout. reserved: where only those are that may run past that moment, the moment.
    domains: its failure domain for each of `UpgradeStrategy.domains`; None if it is in none, and no cap holds it.
    excluded: why this rollout leaves it alone.
    canary: whether it may be among the first. has_image: whether it runs the wanted image, in use or not.
    """

    name: str
    state: MemberState
    runs: Occupancy | None = None
    since: float | None = None
    closed: bool = False
    reserved: float | None = None
    domains: tuple[str | None, ...] = ()
    excluded: MemberWait | None = None
    canary: bool = True
    has_image: bool = False


@dataclass(frozen=True, kw_only=True)
class PoolSnapshot:
    """A pool at one moment.

    members: in the order in which they are updated where nothing else decides, such as rack by rack: what a wide job
    could use together is done together. widths: on how many servers a job runs, of those that span several.
    free: how many of those that are Updated run nothing.
    passed: how many stages (canary, waves) the image has passed in this pool before; they are not asked for again.
    began: when the rollout did. gate: in words, why no stage is over now, though its soak may be.
    halted: in words, why nothing may go on (an image that is not there, a bad comparison);
    None if nothing stands in the way. has_slurm: whether its jobs may be Slurm's, which closes servers for a moment to
    come. attempt: how long a server is out of use for the new image. warning: how long before its end a job is told of
    it.
    """

    members: Sequence[Member]
    began: float
    free: int = 0
    passed: int = 0
    widths: Mapping[str, int] = field(default_factory=dict)
    gate: str | None = None
    halted: str | None = None
    has_slurm: bool = False
    attempt: timedelta = timedelta(minutes=10)
    warning: timedelta = timedelta(minutes=15)
