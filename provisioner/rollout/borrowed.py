"""Which NodePool a server shall be in now: that of its spec, or the one that borrows it at this time. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from provisioner.api import NodePool
from provisioner.api.machinery.errors import NeedsHuman, Refused
from provisioner.cluster.source import spec_of
from provisioner.jobs.selectors import Selector, parse_selector
from provisioner.rollout.windows import open_until, opens_next


@dataclass(frozen=True, kw_only=True)
class Borrowed:
    """Servers that are lent now. text: the selector as it was written."""

    lender: str
    borrower: str
    text: str
    selector: Selector = field(compare=False)


@dataclass(frozen=True, kw_only=True)
class Lending:
    """What is borrowed now. by_lender: what each NodePool has lent, first the borrower that comes first by name.
    changes: when a window opens or closes next. troubles: by borrower, why one of its borrowings cannot be read: it
    borrows nothing by it."""

    by_lender: Mapping[str, tuple[Borrowed, ...]]
    changes: datetime | None
    troubles: Mapping[str, str]

    def wanted_pool(self, server: Mapping[str, Any]) -> str | None:
        """The NodePool that a Server, as JSON, shall be in now; None if it shall be in none."""
        home = spec_of(server).get("nodePoolRef")
        if home is None:
            return None
        labels = server["metadata"].get("labels") or {}
        taken = (each.borrower for each in self.by_lender.get(home, ()) if each.selector.matches(labels))
        return str(next(taken, home))

    def lenders_to(self, pool: str) -> frozenset[str]:
        """NodePools from which that one borrows now."""
        return frozenset(name for name, lent in self.by_lender.items() if any(each.borrower == pool for each in lent))

    def about(self, pool: str) -> frozenset[Borrowed]:
        """All by which it is decided which servers shall be in that NodePool."""
        lenders = {pool, *self.lenders_to(pool)}
        return frozenset(each for name in lenders for each in self.by_lender.get(name, ()))


def lending_of(pools: Iterable[NodePool], now: datetime) -> Lending:
    """What those NodePools borrow at `now`."""
    by_lender: defaultdict[str, list[Borrowed]] = defaultdict(list)
    changes: list[datetime] = []
    troubles: dict[str, str] = {}
    for pool in sorted(pools, key=lambda each: each.name):
        for borrowing in pool.spec.borrows:
            try:
                selector = parse_selector(borrowing.selector)
                closes, opens = open_until(borrowing.windows, now), opens_next(borrowing.windows, now)
            except (NeedsHuman, Refused) as error:
                troubles[pool.name] = f"spec.borrows from NodePool '{borrowing.node_pool_ref}': {error}"
                continue
            changes += [moment for moment in (closes, opens) if moment is not None]
            if closes is not None:
                by_lender[borrowing.node_pool_ref].append(
                    Borrowed(
                        lender=borrowing.node_pool_ref,
                        borrower=pool.name,
                        text=borrowing.selector,
                        selector=selector,
                    )
                )
    return Lending(
        by_lender={name: tuple(lent) for name, lent in by_lender.items()},
        changes=min(changes, default=None),
        troubles=troubles,
    )
