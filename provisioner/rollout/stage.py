"""How far a rollout may go now: canary, soak, wave by wave. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from provisioner.api.meta import rfc3339
from provisioner.api.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.fleet import Member

StageName = Literal["Canary", "CanarySoak", "Wave", "WaveSoak", "Rest"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """limit: how many servers may have the new image, or be on their way to it. words: what it waits for.

    until: when a soak is over, should nothing fail.
    """

    name: StageName
    limit: int
    words: str
    until: datetime | None = None


def find_stage(members: Sequence[Member], strategy: UpgradeStrategy, now: datetime, *, passed: bool) -> Stage:
    """The stage of a rollout over `members`. passed: the image has passed the canary of this pool before.

    A stage is over when as many servers as it takes are in use with the new image and have been so for its soak. It
    takes no more than there are.
    """
    since = sorted(m.since for m in members if m.state == "Updated" and m.since is not None)
    canary = strategy.canary
    if not passed and canary.count > 0:
        name, words = "canary", f"{canary.count} of {len(members)} servers"
        stage = _part("Canary", "CanarySoak", name, words, canary.count, canary.soak_seconds, members, since, now)
        if stage is not None:
            return stage
    for number, wave in enumerate(strategy.waves, start=1):
        count = math.ceil(len(members) * wave.share / 100)
        name, words = f"wave {number}", f"{wave.share} % of the servers, {count} of {len(members)}"
        stage = _part("Wave", "WaveSoak", name, words, count, wave.soak_seconds, members, since, now)
        if stage is not None:
            return stage
    return Stage(name="Rest", limit=len(members), words="all servers may follow")


def _part(
    filling: StageName,
    soaking: StageName,
    name: str,
    words: str,
    count: int,
    soak_seconds: int,
    members: Sequence[Member],
    since: Sequence[datetime],
    now: datetime,
) -> Stage | None:
    """The stage while it lasts; None once it is over."""
    able = sum(m.state in ("Updated", "Updating", "Outdated", "Failed") and m.excluded is None for m in members)
    count = min(count, able)
    if len(since) < count:
        return Stage(name=filling, limit=count, words=f"{name}: {words}; {len(since)} in use with the new image")
    over = since[count - 1] + timedelta(seconds=soak_seconds) if count else now
    if now < over:
        return Stage(name=soaking, limit=count, words=f"{name}: in use until {rfc3339(over)} to be judged", until=over)
    return None
