"""How many more servers may be taken out of use, in a pool and in each of its failure domains. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from provisioner.api.machinery.wording import quantity
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.rollout.fleet import Member
from provisioner.rollout.stage import StageState
from provisioner.rollout.wait import MemberWait
from provisioner.rules.amounts import resolve_amount

DEFAULT_PARALLEL: Final = "10%"
DEFAULT_UNAVAILABLE: Final = "25%"
_OUT: Final = frozenset(("Updating", "Failed", "Down", "Absent"))


class RolloutCapacity:
    """Counts down as servers are taken."""

    def __init__(
        self, members: Sequence[Member], strategy: UpgradeStrategy, counts: Mapping[str, int], stage: StageState
    ):
        size = len(members)
        self._parallel = _cap(strategy.max_parallel, DEFAULT_PARALLEL, size)
        self._unavailable = _cap(strategy.max_unavailable, DEFAULT_UNAVAILABLE, size)
        self._updating, self._failed = counts.get("Updating", 0), counts.get("Failed", 0)
        self._others = counts.get("Down", 0) + counts.get("Absent", 0)
        self._stage = stage
        self._in_stage = stage.limit - stage.taken
        self._keys = tuple(cap.key for cap in strategy.domains)
        self._domain_out: list[Counter[str | None]] = []
        self._domain_caps: list[dict[str | None, int]] = []
        for number, cap in enumerate(strategy.domains):
            sizes = Counter(member.domains[number] for member in members)
            self._domain_out.append(Counter(member.domains[number] for member in members if member.state in _OUT))
            self._domain_caps.append({name: resolve_amount(cap.max_unavailable, size) for name, size in sizes.items()})
        self._full_domains: dict[tuple[int, str], MemberWait] = {}

    @property
    def stage_has_room(self) -> bool:
        """Whether the stage lets another server begin at all."""
        return self._in_stage > 0

    @property
    def at_once(self) -> int:
        """How many servers may be updated at once, as things stand; 0 if those that failed or broke take all places."""
        return max(0, min(self._parallel - self._failed, self._unavailable - self._failed - self._others))

    def can_take(self, group: Sequence[Member]) -> bool:
        """Whether all of these servers may be taken out of use now."""
        ours = self._updating + self._failed
        places = min(self._in_stage, self._parallel - ours, self._unavailable - ours - self._others)
        return len(group) <= places and self._fits_domains(group, [dict(out) for out in self._domain_out])

    def could_take(self, group: Sequence[Member]) -> bool:
        """Whether all of these servers might be taken out of use at once if no other was."""
        most = min(self._stage.limit, self._parallel, self._unavailable)
        return len(group) <= most and self._fits_domains(group, [{} for _ in self._domain_out])

    def _fits_domains(self, group: Sequence[Member], out: Sequence[dict[str | None, int]]) -> bool:
        for number, taken in enumerate(out):
            for member in group:
                domain = member.domains[number]
                taken[domain] = taken.get(domain, 0) + 1
                if domain is not None and taken[domain] > self._domain_caps[number][domain]:
                    return False
        return True

    def take(self, member: Member) -> None:
        """One more is on its way to the image."""
        self._updating += 1
        self._in_stage -= 1
        for out, domain in zip(self._domain_out, member.domains, strict=True):
            out[domain] += 1

    def full_wait(self) -> MemberWait | None:
        """Why no server of the pool may be taken out of use now; None if one may."""
        if not self.stage_has_room:
            if self._stage.name.endswith("Soak"):
                return MemberWait("Soak", self._stage.words)
            return MemberWait("Canary" if self._stage.name == "Canary" else "Wave", self._stage.words)
        ours = self._updating + self._failed
        moving = quantity(self._updating, "server is on its way", "servers are on their way")
        words = f"{moving} to the image, {self._failed} failed"
        if ours >= self._parallel:
            return MemberWait("Parallel", f"{words}, and {self._parallel} may be so at once (maxParallel)")
        if ours + self._others >= self._unavailable:
            words += f", {quantity(self._others, 'is', 'are')} out of use for other reasons"
            return MemberWait(
                "Unavailable", f"{words}, and {self._unavailable} may be out of use at once (maxUnavailable)"
            )
        return None

    def domain_wait(self, member: Member) -> MemberWait | None:
        """Why none of the server's failure domain may be taken out of use now; None if one may."""
        for number, domain in enumerate(member.domains):
            if domain is not None and self._domain_out[number][domain] >= self._domain_caps[number][domain]:
                key = number, domain
                if key not in self._full_domains:
                    self._full_domains[key] = self._full_domain(*key)
                return self._full_domains[key]
        return None

    def _full_domain(self, number: int, domain: str) -> MemberWait:
        out, cap = self._domain_out[number][domain], self._domain_caps[number][domain]
        place = f"{self._keys[number]} {domain}"
        words = quantity(out, f"server of {place} is out of use", f"servers of {place} are out of use")
        return MemberWait("Domain", f"{words}, and {cap} may be at once (domains)")


def _cap(amount: int | str | None, default: str, size: int) -> int:
    return resolve_amount(default if amount is None else amount, size)
