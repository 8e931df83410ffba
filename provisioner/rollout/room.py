"""How many more servers may be taken out of use, in a pool and in each of its failure domains. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from provisioner.api.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.amounts import resolve_amount
from provisioner.rollout.fleet import Member
from provisioner.rollout.stage import Stage
from provisioner.rollout.wait import Wait

DEFAULT_PARALLEL: Final = "10%"
DEFAULT_UNAVAILABLE: Final = "25%"
_OUT: Final = frozenset(("Updating", "Failed", "Down", "Absent"))


class Room:
    """Counts down as servers are taken."""

    def __init__(self, members: Sequence[Member], strategy: UpgradeStrategy, counts: Mapping[str, int], stage: Stage):
        size = len(members)
        self.parallel = _cap(strategy.max_parallel, DEFAULT_PARALLEL, size)
        self._unavailable = _cap(strategy.max_unavailable, DEFAULT_UNAVAILABLE, size)
        self._ours = counts.get("Updating", 0) + counts.get("Failed", 0)
        self._others = counts.get("Down", 0) + counts.get("Absent", 0)
        self._stage = stage
        self._in_stage = stage.limit - self._ours - counts.get("Updated", 0)
        self._keys = tuple(cap.key for cap in strategy.domains)
        sizes: Counter[tuple[int, str | None]] = Counter()
        self._domain_out: Counter[tuple[int, str | None]] = Counter()
        if strategy.domains:
            for member in members:
                for place in enumerate(member.domains):
                    sizes[place] += 1
                    self._domain_out[place] += member.state in _OUT
        self._domain_caps = {
            place: resolve_amount(strategy.domains[place[0]].max_unavailable, count) for place, count in sizes.items()
        }

    @property
    def stage_has_room(self) -> bool:
        """Whether the stage lets another server begin at all."""
        return self._in_stage > 0

    def take(self, member: Member) -> None:
        """One more is on its way to the image."""
        self._ours += 1
        self._in_stage -= 1
        for place in enumerate(member.domains):
            self._domain_out[place] += 1

    def full_wait(self) -> Wait | None:
        """Why no server of the pool may be taken out of use now; None if one may."""
        if not self.stage_has_room:
            if self._stage.until is not None:
                return Wait("Soak", self._stage.words)
            return Wait("Canary" if self._stage.name == "Canary" else "Wave", self._stage.words)
        if self._ours >= self.parallel:
            words = f"{self._ours} servers are on their way to the image, and {self.parallel} may be at once"
            return Wait("Parallel", f"{words} (maxParallel)")
        out = self._ours + self._others
        if out >= self._unavailable:
            words = f"{out} servers are out of use, {self._others} of them for other reasons"
            return Wait("Unavailable", f"{words}, and {self._unavailable} may be at once (maxUnavailable)")
        return None

    def domain_wait(self, member: Member) -> Wait | None:
        """Why none of the server's failure domain may be taken out of use now; None if one may."""
        for place in enumerate(member.domains):
            number, domain = place
            out, cap = self._domain_out[place], self._domain_caps[place]
            if domain is not None and out >= cap:
                words = f"{out} servers of {self._keys[number]} {domain} are out of use, and {cap} may be at once"
                return Wait("Domain", f"{words} (domains)")
        return None


def _cap(amount: int | str | None, default: str, size: int) -> int:
    return resolve_amount(default if amount is None else amount, size)
