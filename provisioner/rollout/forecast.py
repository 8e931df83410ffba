"""What a rollout would do from now on: the planner asked again and again, with the clock set forward. Pure.

In it every job ends when it is expected to, none fails, no new one begins, and each server takes the same time. It is
what the planner would do then, in its order, with its canary, soaks, waves, windows and caps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.fleet import Member, PoolSnapshot
from provisioner.rollout.plan import Plan, plan
from provisioner.rollout.stage import StageName
from provisioner.rollout.wait import MemberWait

MAX_STEPS: Final = 2000
MAX_JOB_ENDS: Final = 300
"""Ends of jobs are rounded up so that there are no more moments of them."""
LEAST_STEP_SECONDS: Final = 60.0
HORIZON_SECONDS: Final = 400 * 86400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastMove:
    """One server gets the image. Times in seconds since the epoch. stage: in which it does, and how many were over.

    jobs: those that had to end before; ended: whether the rollout ends them, after their warning.
    """

    name: str
    begins: float
    ends: float
    stage: StageName
    passed: int
    jobs: tuple[str, ...] = ()
    ended: bool = False


@dataclass(frozen=True, kw_only=True)
class ForecastStage:
    """A stage: how many servers begin in it, and when the first of them begins and the last one is done."""

    stage: StageName
    passed: int
    servers: int
    begins: float
    ends: float


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """first: what the planner has done now. moves: in the order in which they begin. stays: servers that do not get
    the image as far as is known, and why. completed: when the last one has it; None if some that could never do.
    is_cut: it goes on after the last moment that was looked at."""

    first: Plan
    moves: tuple[ForecastMove, ...]
    stays: Mapping[str, MemberWait]
    completed: datetime | None
    is_cut: bool = False

    @property
    def parts(self) -> tuple[ForecastStage, ...]:
        """The stages that servers move in, in order."""
        found: dict[tuple[int, StageName], list[ForecastMove]] = {}
        for move in self.moves:
            found.setdefault((move.passed, move.stage), []).append(move)
        return tuple(
            ForecastStage(
                stage=stage, passed=passed, servers=len(own), begins=own[0].begins, ends=max(m.ends for m in own)
            )
            for (passed, stage), own in sorted(found.items(), key=lambda each: each[1][0].begins)
        )


@dataclass
class _Course:
    """The fleet as time passes. due: when each that is on its way is there."""

    members: dict[str, Member]
    passed: int
    due: dict[str, float] = field(default_factory=dict)
    moves: list[ForecastMove] = field(default_factory=list)

    def step(
        self, fleet: PoolSnapshot, strategy: UpgradeStrategy, jobs: Mapping[str, tuple[str, ...]], moment: float
    ) -> Plan:
        """What the planner does then, done."""
        self.advance(moment)
        asked = replace(fleet, members=list(self.members.values()), passed=self.passed)
        found = plan(asked, strategy, datetime.fromtimestamp(moment, UTC))
        self.carry_out(found, jobs, fleet.attempt.total_seconds(), moment)
        return found

    def advance(self, moment: float) -> None:
        """What is over by then: boots, and jobs."""
        for name, end in list(self.due.items()):
            if end <= moment:
                self.members[name] = replace(self.members[name], state="Updated", since=end, runs=None)
                del self.due[name]
        for name, member in self.members.items():
            runs = member.runs
            if runs is not None and runs.ends is not None and runs.ends <= moment and member.state == "Outdated":
                self.members[name] = replace(member, runs=None)

    def carry_out(self, found: Plan, jobs: Mapping[str, tuple[str, ...]], attempt: float, moment: float) -> None:
        self.passed = max(self.passed, found.stage.passed)
        beginnings = [(name, moment, False) for name in found.claims]
        beginnings += [(each.name, max(each.at, moment), True) for each in found.interruptions]
        for name, begins, ended in beginnings:
            self.members[name] = replace(self.members[name], state="Updating", runs=None)
            self.due[name] = begins + attempt
            self.moves.append(
                ForecastMove(
                    name=name,
                    begins=begins,
                    ends=begins + attempt,
                    stage=found.stage.name,
                    passed=found.stage.passed,
                    jobs=jobs.get(name, ()),
                    ended=ended,
                )
            )

    def next_moment(self, found: Plan, now: float) -> float | None:
        """When something is over, or time alone changes the plan."""
        moments = [*self.due.values()]
        moments += [m.runs.ends for m in self.members.values() if m.runs is not None and m.runs.ends is not None]
        if found.again is not None and (found.stage.until is not None or self._may_go()):
            moments.append(found.again.timestamp())
        return min((moment for moment in moments if moment > now), default=None)

    def _may_go(self) -> bool:
        """Whether anybody is left who might go without a person, or an end that nobody knows."""
        return bool(self.due) or any(_may_go(member) for member in self.members.values())


def make_forecast(fleet: PoolSnapshot, strategy: UpgradeStrategy, now: datetime) -> Forecast:
    """From now until nothing more happens. Raises: NeedsHuman for a window that cannot be read."""
    start, attempt = now.timestamp(), fleet.attempt.total_seconds()
    jobs = {m.name: m.runs.jobs for m in fleet.members if m.runs is not None}
    course = _Course({m.name: m for m in _with_rounded_ends(fleet.members, start)}, fleet.passed)
    course.due = {m.name: start + attempt for m in fleet.members if m.state == "Updating"}
    moment, is_cut = start, False
    first = found = course.step(fleet, strategy, jobs, moment)
    for _ in range(MAX_STEPS):
        following = course.next_moment(found, moment)
        if following is None:
            break
        if following - start > HORIZON_SECONDS:
            is_cut = True
            break
        moment = following
        found = course.step(fleet, strategy, jobs, moment)
    else:
        is_cut = True
    stays = {name: wait for name, wait in found.waits.items() if name not in course.due and _lacks(course, name)}
    return Forecast(
        first=first,
        moves=tuple(sorted(course.moves, key=lambda move: move.begins)),
        stays=stays,
        completed=_completion(course, is_cut, start),
        is_cut=is_cut,
    )


def _lacks(course: _Course, name: str) -> bool:
    return course.members[name].state not in ("Updated", "Updating")


def _completion(course: _Course, is_cut: bool, start: float) -> datetime | None:
    if is_cut or any(m.state == "Outdated" and m.excluded is None for m in course.members.values()):
        return None
    ends = [*(move.ends for move in course.moves), *(m.since for m in course.members.values() if m.since is not None)]
    return datetime.fromtimestamp(max([start, *ends]), UTC)


def _may_go(member: Member) -> bool:
    if member.state != "Outdated" or member.excluded is not None:
        return False
    runs = member.runs
    return runs is None or runs.ends is not None or runs.interruptible is not None


def _with_rounded_ends(members: Iterable[Member], start: float) -> list[Member]:
    """With few moments at which jobs end; one that should have ended by now ends soon."""
    members = list(members)
    ends = [m.runs.ends for m in members if m.runs is not None and m.runs.ends is not None]
    step = max(LEAST_STEP_SECONDS, (max(ends, default=start) - start) / MAX_JOB_ENDS)

    def rounded(end: float) -> float:
        return start + step * max(1, -int(-(end - start) // step))

    return [
        replace(m, runs=replace(m.runs, ends=rounded(m.runs.ends)))
        if m.runs is not None and m.runs.ends is not None
        else m
        for m in members
    ]
