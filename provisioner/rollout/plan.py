"""Which servers of a pool move to another image now, and why each other one waits. Pure.

Idle servers come first. A server whose jobs fill it is closed to new ones, which costs nothing until its job ends, and
then it is its turn: without that a queued job would take the place of the one that ended, and the server would never
empty. A server that jobs fill only in part stays open, for closing it would idle what is free; jobs are steered away
from it instead. A job that spans servers counts as one. Nothing here ends a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from provisioner.api.meta import rfc3339
from provisioner.api.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.amounts import resolve_amount
from provisioner.rollout.closing import keep_free
from provisioner.rollout.completion import expect_completion
from provisioner.rollout.fleet import Fleet, Member
from provisioner.rollout.room import Room
from provisioner.rollout.stage import Stage, find_stage
from provisioner.rollout.wait import Wait
from provisioner.rollout.windows import open_until, opens_next


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is to be done now. Proposed, not done: asked again with the same facts, the answer is the same.

    claims: servers to take out of use now, in this order; none of them runs a job.
    closed: servers on which no new job shall start, as what runs there fills them. steered: those on which one shall
    start only where no other server can take it.
    waits: every other server without the image, and why. expected: when all have it, should every job end when it is
    expected to and nothing fail; None if that is not known of some job.
    again: when time alone changes the plan.
    """

    stage: Stage
    claims: tuple[str, ...] = ()
    closed: frozenset[str] = frozenset()
    steered: frozenset[str] = frozenset()
    waits: Mapping[str, Wait]
    expected: datetime | None = None
    again: datetime | None = None


def plan(fleet: Fleet, strategy: UpgradeStrategy, now: datetime, *, passed: bool = False) -> Plan:
    """What the rollout of one image over `fleet` does now. passed: the image has passed this pool's canary before."""
    members = fleet.members
    stage = find_stage(members, strategy, now, passed=passed)
    counts: Counter[str] = Counter(m.state for m in members)
    ahead = [m for m in members if m.state == "Outdated" and m.excluded is None]
    waits = {m.name: wait for m in members if (wait := _left_out(m)) is not None}
    stop, again = _stopped(fleet, strategy, counts, now)
    if stop is not None:
        return Plan(stage=stage, waits=waits | dict.fromkeys((m.name for m in ahead), stop), again=again)
    room = Room(members, strategy, counts, stage)
    full = room.full_wait()
    claims: list[str] = []
    busy: list[Member] = []
    for member in _in_order(ahead):
        if member.jobs:
            busy.append(member)
            continue
        wait = full or room.domain_wait(member)
        if wait is not None:
            waits[member.name] = wait
            continue
        claims.append(member.name)
        room.take(member)
        full = room.full_wait()
    closed: frozenset[str] = frozenset()
    steered: frozenset[str] = frozenset()
    if room.stage_has_room:
        closed, steered = keep_free(fleet, ahead, claims, strategy.idle_percent / 100, now)
    for member in busy:
        waits[member.name] = _job_wait(member, fleet) if full is None or room.stage_has_room else full
    expected = None
    if stage.name == "Rest":
        expected = expect_completion(fleet, ahead, counts["Updating"], room.parallel, now)
    return Plan(
        stage=stage,
        claims=tuple(claims),
        closed=closed,
        steered=steered,
        waits=waits,
        expected=expected,
        again=min((moment for moment in (again, stage.until) if moment is not None), default=None),
    )


def _left_out(member: Member) -> Wait | None:
    if member.state == "Outdated" and member.excluded is not None:
        return Wait("Excluded", member.excluded)
    if member.state == "Down":
        return Wait("Down", "it is out of use; it boots the right image when it boots")
    return None


def _stopped(
    fleet: Fleet, strategy: UpgradeStrategy, counts: Mapping[str, int], now: datetime
) -> tuple[Wait | None, datetime | None]:
    """Why nothing at all goes on, if so; and when time alone changes that."""
    if strategy.paused:
        return Wait("Paused", "the rollout is paused (spec.upgradeStrategy.paused)"), None
    for field, amount in (("maxParallel", strategy.max_parallel), ("maxUnavailable", strategy.max_unavailable)):
        if amount is not None and resolve_amount(amount, 100) == 0:
            return Wait("Paused", f"the rollout is paused (spec.upgradeStrategy.{field} is 0)"), None
    if counts["Failed"] >= strategy.max_failures:
        words = f"{counts['Failed']} servers failed with the new image, {strategy.max_failures} may (maxFailures)"
        return Wait("Failures", f"{words}: a person decides how it goes on"), None
    if fleet.halted is not None:
        return Wait("Halted", fleet.halted), None
    if strategy.windows:
        closes = open_until(strategy.windows, now)
        if closes is None:
            opens = opens_next(strategy.windows, now)
            words = f"the next opens at {rfc3339(opens)}" if opens is not None else "none ever opens"
            return Wait("Window", f"no maintenance window is open; {words}"), opens
        return None, closes
    return None, None


def _in_order(ahead: Iterable[Member]) -> list[Member]:
    """By failure domain, then by name: what a wide job could use together is done together."""
    return sorted(ahead, key=lambda m: (tuple(domain or "" for domain in m.domains), m.name))


def _job_wait(member: Member, fleet: Fleet) -> Wait:
    first = fleet.jobs.get(member.jobs[0])
    words = f"{len(member.jobs)} jobs run there" if len(member.jobs) > 1 else f"{member.jobs[0]} runs there"
    if first is not None and len(first.members) > 1:
        words += f", {member.jobs[0]} on {len(first.members)} servers"
    return Wait("Job", words, member.jobs)
