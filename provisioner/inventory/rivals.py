"""Who claims the same: an index over the servers in the cache, kept while they change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provisioner.inventory.duplicates import POSITION, Claim, claims_of
from provisioner.rules.identity import precedence

Object = Mapping[str, Any]


def exclusive_claims(body: Object | None) -> frozenset[Claim]:
    """What no two servers may claim if both are to boot. A rejected server claims nothing."""
    if body is None or body["spec"].get("acceptance") == "Rejected":
        return frozenset()
    # A wrong place in a rack misleads a technician; it boots no wrong machine.
    return frozenset(claim for claim in claims_of(body["spec"]) if claim.what != POSITION)


class ClaimIndex:
    """Names by claim. Written by the informer's thread, read by others."""

    def __init__(self) -> None:
        # By the whole of what is claimed. A tuple has mostly one in it, and a set takes four times its memory.
        self._made: dict[Claim, tuple[tuple[Claim, str], ...]] = {}
        self._lock = threading.Lock()

    def change(self, name: str, old: Object | None, new: Object | None) -> frozenset[str]:
        """Take in a change; returns the other servers that share a claim with the object before or after it."""
        before, after = exclusive_claims(old), exclusive_claims(new)
        with self._lock:
            touched = {other for claim in before | after for other in self._claimants(claim)}
            for claim in before - after:
                left = tuple(made for made in self._made.get(claim.whole, ()) if made != (claim, name))
                if left:
                    self._made[claim.whole] = left
                else:
                    self._made.pop(claim.whole, None)
            for claim in after:
                made = self._made.get(claim.whole, ())
                if (claim, name) not in made:
                    self._made[claim.whole] = (*made, (claim, name))
        return frozenset(touched - {name})

    def claimants(self, claims: Iterable[Claim]) -> dict[Claim, list[str]]:
        """Names by claim, of those claims that somebody makes or that clash with what somebody claims."""
        with self._lock:
            found = {claim: sorted(self._claimants(claim)) for claim in claims}
        return {claim: names for claim, names in found.items() if names}

    def _claimants(self, claim: Claim) -> set[str]:
        return {name for made, name in self._made.get(claim.whole, ()) if made.clashes(claim)}


def find_rivals(
    body: Object, claimants: Mapping[Claim, Iterable[str]], server: Callable[[str], Object | None]
) -> dict[str, str]:
    """Servers that take precedence over this one, and what both claim: `{"r01-u01": "MAC address 52:…"}`."""
    rivals: dict[str, str] = {}
    for claim, names in sorted(claimants.items()):
        for name in names:
            other = server(name)
            if other is not None and name != body["metadata"]["name"] and precedence(other) < precedence(body):
                rivals.setdefault(name, str(claim))
    return rivals
