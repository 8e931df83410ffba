"""How tenants share what there is a bounded number of. Pure.

Each has a share that no other one's use makes smaller, and more where the others leave something.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

K = TypeVar("K", int, str, tuple[str, str])


def fitting(sizes: Mapping[K, tuple[str, int, int]], most: int) -> set[K]:
    """sizes: tenant, rank and size of each; of one tenant those of a lower rank go first, and then the smaller ones.
    First each tenant has what fits into its share; what is left over goes to those first who ask for less."""
    asked: defaultdict[str, int] = defaultdict(int)
    for tenant, _, size in sizes.values():
        asked[tenant] += size
    used: defaultdict[str, int] = defaultdict(int)
    total = 0
    found: set[K] = set()
    for bound in (share(asked.values(), most), most):
        for key in sorted(sizes.keys() - found, key=lambda key: (asked[sizes[key][0]], *sizes[key][1:], key)):
            tenant, _, size = sizes[key]
            if used[tenant] + size <= bound and total + size <= most:
                found.add(key)
                used[tenant] += size
                total += size
    return found


def share(asked: Iterable[int], most: int) -> int:
    """The most that each may have so that all may: who asks for less leaves the rest to the others."""
    waiting = sorted(asked)
    for number, each in enumerate(waiting):
        if each * (len(waiting) - number) > most:
            return most // (len(waiting) - number)
        most -= each
    return most


def may_take(held: int, free: int) -> bool:
    """Whether a tenant that holds so many may take another one: none takes more than are left for all, so that one
    alone has half of them at most, and one that has none always gets one."""
    return held <= free
