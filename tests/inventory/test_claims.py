"""Claims of addresses: what is written for whom, and what one failure costs the others."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.errors import Conflict, NeedsHuman, NotFound
from provisioner.inventory.addresses.claims import AddressClaimer, ClaimBook
from provisioner.inventory.addresses.subnets import FreeAddresses


class Blocks:
    """The API server as far as AddressBlocks go; `broken` ones are refused, `raced` ones were written by another."""

    def __init__(self) -> None:
        self.blocks: dict[str, dict[str, Any]] = {}
        self.broken: set[str] = set()
        self.writes = 0

    def create(self, type_: Any, body: dict[str, Any]) -> dict[str, Any]:
        name = body["metadata"]["name"]
        if name in self.blocks:
            raise Conflict(f"{name} exists", after_seconds=0.0)
        return self._store(name, body["spec"])

    def patch(self, type_: Any, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        before = self.blocks[name]
        if patch["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise Conflict(f"{name} was modified", after_seconds=0.0)
        claims = {a: s for a, s in (before["spec"]["claims"] | patch["spec"]["claims"]).items() if s is not None}
        return self._store(name, {**patch["spec"], "claims": claims})

    def get(self, type_: Any, name: str) -> dict[str, Any]:
        if name not in self.blocks:
            raise NotFound(f"{name} is gone", hint="")
        return self.blocks[name]

    def _store(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        if name in self.broken:
            raise NeedsHuman(f"{name} was refused", hint="ask its owner")
        self.writes += 1
        self.blocks[name] = {"metadata": {"name": name, "resourceVersion": str(self.writes)}, "spec": spec}
        return self.blocks[name]


class Wanted:
    """What a server is to have."""

    def __init__(self, address: str | None) -> None:
        self.address = address


class Site:
    def __init__(self, **wanted: str) -> None:
        self.wanted, self.api, self.served = wanted, Blocks(), list[str]()
        self.book = ClaimBook(FreeAddresses())
        self.claimer = AddressClaimer(
            self.api,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.book,
            lambda body: Wanted(self.wanted[body["metadata"]["name"]]),  # type: ignore[arg-type,return-value]
            served=self.served.append,
            monotonic=lambda: 0.0,
        )

    def get(self, name: str) -> dict[str, Any] | None:
        return {"metadata": {"name": name}, "spec": {}} if name in self.wanted else None

    def ask(self, *names: str) -> None:
        for name in names:
            self.claimer.ask(name)
        self.claimer.reconcile("claims")


def test_all_who_wait_are_claimed_for_in_one_write() -> None:
    site = Site(**{f"u{number}": f"10.80.0.{number}" for number in range(2, 42)})
    site.ask(*site.wanted)
    assert site.api.writes == 1
    assert site.api.blocks["10.80.0.0"]["spec"]["claims"] == {f"10.80.0.{n}": f"u{n}" for n in range(2, 42)}
    assert site.served == list(site.wanted)


def test_who_was_slower_than_another_leader_reads_the_block_and_gives_nothing_twice() -> None:
    site, other = Site(a="10.80.0.2"), Site(b="10.80.0.2")
    other.api = site.api
    other.claimer._cluster = site.api  # type: ignore[assignment]
    site.ask("a")
    with pytest.raises(Conflict):
        other.ask("b")
    assert list(other.book.get("10.80.0.2", ())) == ["a"], "it knows now"
    other.claimer.reconcile("claims")
    assert site.api.blocks["10.80.0.0"]["spec"]["claims"] == {"10.80.0.2": "a"}


def test_a_block_that_is_refused_keeps_nobody_else_waiting() -> None:
    site = Site(a="10.80.0.2", b="10.81.0.2")
    site.api.broken.add("10.80.0.0")
    with pytest.raises(NeedsHuman):
        site.ask("a", "b")
    assert site.served == ["b"]
    site.api.broken.clear()
    site.claimer.reconcile("claims")
    assert site.served == ["b", "a"]


def test_a_claim_that_is_used_again_is_written_again() -> None:
    """So that a leader that is about to take it back, on what it knew before, meets a conflict."""
    maker, heir = Site(a="10.80.0.2"), Site(a="10.80.0.2")
    maker.ask("a")
    heir.claimer._cluster = maker.api  # type: ignore[assignment]
    heir.book.take("10.80.0.0", maker.api.blocks["10.80.0.0"])
    heir.ask("a")
    assert maker.api.blocks["10.80.0.0"]["spec"] == {"revision": 2, "claims": {"10.80.0.2": "a"}}
