"""Which servers of a pool move to another image now, and why each other one waits. Pure.

Idle servers come first, in the order of `members.order_of`. A server that a single job fills is closed to new ones,
which costs nothing until it ends, and then it is its turn: without that a queued job would take the place of the one
that ended, and the server would never empty. A server that jobs fill only in part stays open, for closing it would idle
what is free; of the last ones, and of idle ones that have to wait, jobs are steered away instead, so that few have to
end there. A job that spans servers counts as one. No job is ended, but at a deadline that the pool sets, and after its
warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.closing import find_closed, find_reserved, find_steered
from provisioner.rollout.completion import expect_completion
from provisioner.rollout.fleet import Member, Occupancy, PoolSnapshot
from provisioner.rollout.interrupting import Interruption, find_interrupted
from provisioner.rollout.room import RolloutCapacity
from provisioner.rollout.stage import StageState, find_stage
from provisioner.rollout.wait import MemberWait, WaitReason
from provisioner.rollout.windows import open_until, opens_next
from provisioner.rules.amounts import resolve_amount

_NO_TURN: Final[Mapping[str, MemberWait]] = {
    "Down": MemberWait("Down", "it is out of use; its turn comes when it is back"),
    "Failed": MemberWait("Failed", "it failed with the new image, and keeps its place until a person decides"),
    "Absent": MemberWait("Absent", "it has not joined; its next boot brings the image"),
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done now. Proposed, not done: asked again with the same facts, the answer is the same.

    claims: servers to take out of use now, in this order; none of them runs a job. interruptions: servers whose jobs
    are told now of their end. From then on they count as on their way to the image.
    closed: servers on which no new job shall start. reserved: those of them where one may that ends by that moment, in
    seconds since the epoch. steered: those on which one shall start only where no other server
    can take it.
    held: servers that wait for something else than jobs, and for what. working: those that wait for jobs.
    stopped: why nothing at all goes on; None if something may.
    expected: when all servers have the image that can have it, should every job end when it is expected to and nothing
    fail; None if that is not known, or none of them is left. again: when time alone changes the plan.
    """

    stage: StageState
    claims: tuple[str, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    closed: frozenset[str] = frozenset()
    reserved: Mapping[str, float] = field(default_factory=dict)
    steered: frozenset[str] = frozenset()
    held: Mapping[str, MemberWait]
    stopped: MemberWait | None = None
    working: tuple[Member, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    expected: datetime | None = None
    again: datetime | None = None

    @property
    def waits(self) -> dict[str, MemberWait]:
        """Every server without the image that is neither on its way there nor claimed now, and why."""
        jobs = {m.name: _wait_for_jobs(m.runs, self.widths) for m in self.working if m.runs is not None}
        return {**self.held, **jobs}

    @property
    def wait_counts(self) -> Counter[WaitReason]:
        """How many wait for what: of `waits` the reasons alone, without words for each server."""
        counts = Counter(wait.reason for wait in self.held.values())
        if self.working:
            counts["Job"] += len(self.working)
        return counts


def plan(fleet: PoolSnapshot, strategy: UpgradeStrategy, now: datetime) -> Plan:
    """What the rollout of one image over `fleet` does now. Raises: NeedsHuman for a window that cannot be read."""
    members = fleet.members
    counts: Counter[str] = Counter(m.state for m in members)
    stop, again = _stopped(fleet, strategy, counts, now)
    if stop is not None and stop.reason != "Window":
        fleet = replace(fleet, gate=stop.words)  # time alone must not release an image that somebody has stopped
    stage = find_stage(fleet, strategy, now)
    idle, busy, held = _sort_out(members)
    if stop is not None:
        held.update(dict.fromkeys((m.name for m in (*idle, *busy)), stop))
        return Plan(stage=stage, held=held, stopped=stop, again=again)
    if stage.name == "Canary":
        wait = MemberWait("Canary", stage.words)
        held.update((m.name, wait) for m in (*idle, *busy) if not m.canary)
        idle, busy = [m for m in idle if m.canary], [m for m in busy if m.canary]
    room = RolloutCapacity(members, strategy, counts, stage)
    claims = _claim(idle, room, held)
    again = min((moment for moment in (again, stage.until) if moment is not None), default=None)
    full, is_any_left = room.full_wait(), bool(busy) or len(claims) < len(idle)
    if is_any_left and full is not None and (not room.stage_has_room or not room.at_once):
        # No end of a job would let a server go on: nothing is kept free for it.
        held.update(dict.fromkeys((m.name for m in busy), full))
        return Plan(stage=stage, claims=tuple(claims), held=held, again=again)
    warning = fleet.warning.total_seconds()
    interruptions, too_wide = find_interrupted(busy, room, warning, now.timestamp())
    held.update(too_wide)
    if told := {each.name for each in interruptions}:
        busy = [m for m in busy if m.name not in told]
    closed = find_closed(fleet, busy, strategy.stragglers, now.timestamp())
    reserved = find_reserved(fleet, (m for m in busy if m.name in closed), now.timestamp())
    claimed = frozenset(claims)
    waiting = [m for m in idle if m.name not in claimed]
    steered: frozenset[str] = frozenset()
    if strategy.steer_jobs:
        steered = find_steered(fleet, [m for m in busy if m.name not in closed], waiting, now.timestamp())
    expected = None
    if stage.name == "Rest" and not strategy.windows:
        expected = expect_completion(fleet, len(idle), busy, counts["Updating"] + len(told), room.at_once, now)
    return Plan(
        stage=stage,
        claims=tuple(claims),
        interruptions=tuple(interruptions),
        closed=closed,
        reserved=reserved,
        steered=steered,
        held=held,
        working=tuple(m for m in busy if m.name not in too_wide) if too_wide else tuple(busy),
        widths=fleet.widths,
        expected=expected,
        again=min((m for m in (again, *_moments(fleet, busy, reserved, strategy, now)) if m is not None), default=None),
    )


def _sort_out(members: Iterable[Member]) -> tuple[list[Member], list[Member], dict[str, MemberWait]]:
    """Servers without the image: those that are idle, those that run jobs, and why it is not the others' turn."""
    idle: list[Member] = []
    busy: list[Member] = []
    held: dict[str, MemberWait] = {}
    for member in members:
        if member.state == "Outdated":
            if member.excluded is not None:
                held[member.name] = member.excluded
            elif member.runs is None:
                idle.append(member)
            else:
                busy.append(member)
        elif member.state in _NO_TURN:
            held[member.name] = _NO_TURN[member.state]
    return idle, busy, held


def _claim(idle: Iterable[Member], room: RolloutCapacity, held: dict[str, MemberWait]) -> list[str]:
    """Those whose turn it is; why it is not that of others goes into `held`."""
    claims: list[str] = []
    full = room.full_wait()
    for member in idle:
        wait = full or room.domain_wait(member)
        if wait is not None:
            held[member.name] = wait
            continue
        claims.append(member.name)
        room.take(member)
        full = room.full_wait()
    return claims


def _stopped(
    fleet: PoolSnapshot, strategy: UpgradeStrategy, counts: Mapping[str, int], now: datetime
) -> tuple[MemberWait | None, datetime | None]:
    """Why nothing at all goes on, if so; and when time alone changes that."""
    if strategy.paused:
        return MemberWait("Paused", "the rollout is paused (spec.upgradeStrategy.paused)"), None
    for name, amount in (("maxParallel", strategy.max_parallel), ("maxUnavailable", strategy.max_unavailable)):
        if amount is not None and resolve_amount(amount, 100) == 0:
            return MemberWait("Paused", f"the rollout is paused (spec.upgradeStrategy.{name} is 0)"), None
    if reaches_limit(counts["Failed"], strategy):
        failed = quantity(counts["Failed"], "server")
        words = f"{failed} failed with the new image; the rollout stops at {strategy.max_failures}"
        return MemberWait("Failures", f"{words} (maxFailures): a person decides how it goes on"), None
    if fleet.halted is not None:
        return MemberWait("Halted", fleet.halted), None
    if strategy.windows:
        closes = open_until(strategy.windows, now)
        if closes is None:
            opens = opens_next(strategy.windows, now)
            words = f"the next opens at {rfc3339(opens)}" if opens is not None else "none ever opens"
            return MemberWait("Window", f"no maintenance window is open; {words}"), opens
        return None, closes
    return None, None


def reaches_limit(failed: int, strategy: UpgradeStrategy) -> bool:
    """Whether the number of servers that failed with the new image has reached maxFailures."""
    return failed >= strategy.max_failures


def _moments(
    fleet: PoolSnapshot, busy: Iterable[Member], reserved: Mapping[str, float], strategy: UpgradeStrategy, now: datetime
) -> Iterator[datetime]:
    """When the first straggler is closed, when the first one takes no job at all any more, and when the next job is
    told of its end, if these are yet to come."""
    moment, warning = now.timestamp(), fleet.warning.total_seconds()
    coming = [m.runs.interruptible - warning for m in busy if m.runs and m.runs.interruptible is not None]
    coming += reserved.values()
    if strategy.stragglers is not None:
        coming.append(fleet.began + strategy.stragglers.after_seconds)
    later = [each for each in coming if each > moment]
    if later:
        yield datetime.fromtimestamp(min(later), UTC)


def _wait_for_jobs(runs: Occupancy, widths: Mapping[str, int]) -> MemberWait:
    """It waits for what runs there; of those the widest is named."""
    widest = max(runs.jobs, key=lambda key: widths.get(key, 1))
    words = f"runs {widest}"
    if widths.get(widest, 1) > 1:
        words += f", which spans {widths[widest]} servers"
    if len(runs.jobs) > 1:
        words += f", and {len(runs.jobs) - 1} more"
    return MemberWait("Job", words, runs.jobs)
