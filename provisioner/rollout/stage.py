"""How far a rollout may go now: canary, soak, wave by wave. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.fleet import Member, PoolSnapshot

StageName = Literal["Canary", "CanarySoak", "Wave", "WaveSoak", "Rest"]


@dataclass(frozen=True, kw_only=True)
class StageState:
    """limit: how many servers may have the new image, or be on their way to it; taken: how many of them do, also those
    that are out of use for a moment: an image whose servers come and go shall not walk through the pool. words: what it
    waits for.

    passed: how many stages are over, to be remembered: a server that breaks later takes none of them back.
    until: when a soak is over, should nothing fail.
    """

    name: StageName
    limit: int
    words: str
    passed: int
    taken: int = 0
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class _Part:
    """So many servers, which are then in use for a while before more follow."""

    filling: StageName
    soaking: StageName
    name: str
    count: int
    soak_seconds: int


def find_stage(fleet: PoolSnapshot, strategy: UpgradeStrategy, now: datetime) -> StageState:
    """The stage of a rollout.

    One is over when as many servers as it takes are in use with the new image and have been so for its soak. It takes
    no more than could be; those that failed could not, they wait for a person. Where none could, it is not over.
    """
    members, moment = fleet.members, now.timestamp()
    parts = list(_parts(len(members), strategy))
    passed = min(fleet.passed, len(parts))
    for number, part in enumerate(parts[passed:], start=passed):
        eligible = members if part.filling != "Canary" else [m for m in members if m.canary]
        since = sorted(moment if m.since is None else m.since for m in eligible if m.state == "Updated")
        updating = sum(m.state == "Updating" for m in eligible)
        able = len(since) + updating + sum(m.state == "Outdated" and m.excluded is None for m in eligible)
        stage = _stage_of(part, number, since, able, moment, fleet.gate)
        if stage is not None:
            return replace(stage, taken=sum(map(_counts, eligible)))
    taken = sum(map(_counts, members))
    return StageState(name="Rest", limit=len(members), words="all servers may follow", passed=len(parts), taken=taken)


def _counts(member: Member) -> bool:
    return member.state in ("Updated", "Updating") or (member.state == "Down" and member.has_image)


def _parts(size: int, strategy: UpgradeStrategy) -> Iterator[_Part]:
    canary = strategy.canary
    yield _Part(
        filling="Canary", soaking="CanarySoak", name="canary", count=canary.count, soak_seconds=canary.soak_seconds
    )
    for number, wave in enumerate(strategy.waves, start=1):
        count = math.ceil(size * wave.share / 100)
        name = f"wave {number}, {wave.share} %"
        yield _Part(filling="Wave", soaking="WaveSoak", name=name, count=count, soak_seconds=wave.soak_seconds)


def _stage_of(
    part: _Part, number: int, since: Sequence[float], able: int, now: float, gate: str | None
) -> StageState | None:
    """The stage while it lasts; None once it is over. able: how many servers could have the image."""
    count = min(part.count, able)
    if part.count and not count:
        words = f"{part.name}: no server is in use that could be the first"
        return StageState(name=part.filling, limit=0, words=words, passed=number)
    if len(since) < count:
        words = f"{part.name}: {len(since)} of {quantity(count, 'server')} in use with the new image"
        return StageState(name=part.filling, limit=count, words=words, passed=number)
    over = since[count - 1] + part.soak_seconds if count else 0.0
    if now < over:
        until = datetime.fromtimestamp(over, UTC)
        words = f"{part.name}: in use until {rfc3339(until)} before more follow"
        return StageState(name=part.soaking, limit=count, words=words, passed=number, until=until)
    if count and gate is not None:
        return StageState(name=part.soaking, limit=count, words=f"{part.name}: {gate}", passed=number)
    return None
