"""Claims of addresses: what is written for whom, and what one failure costs the others."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.machinery.errors import Conflict, NeedsHuman, NotFound
from provisioner.inventory.addresses.claims import BATCH, LASTING_SECONDS, AddressClaimer, ClaimBook
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

    def raced(self, type_: Any, body: dict[str, Any]) -> dict[str, Any]:
        raise Conflict("another was faster", after_seconds=0.0)

    def get(self, type_: Any, name: str) -> dict[str, Any]:
        if name not in self.blocks:
            raise NotFound(f"{name} is gone", hint="")
        return self.blocks[name]

    def find(self, type_: Any, name: str) -> dict[str, Any] | None:
        return self.blocks.get(name)

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
        self.wanted, self.api, self.news = wanted, Blocks(), list[str]()
        self.book, self.seconds = ClaimBook(FreeAddresses()), 0.0
        self.claimer = AddressClaimer(
            self.api,  # type: ignore[arg-type]
            self,  # type: ignore[arg-type]
            self.book,
            lambda body: Wanted(self.wanted[body["metadata"]["name"]]),  # type: ignore[arg-type,return-value]
            news=self.news.append,
            monotonic=lambda: self.seconds,
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
    assert site.news == list(site.wanted)


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
    assert site.book.has_written("b", "10.81.0.2")
    assert site.news == ["b", "a"], "the one has its claim, of the other there is something to say"
    assert site.claimer.failure("b") is None
    assert site.claimer.failure("a") == (
        "claims in AddressBlock 10.80.0.0 cannot be written: 10.80.0.0 was refused; the controller must be able to "
        "write it: kubectl get addressblock 10.80.0.0 -o yaml; ask its owner"
    )
    site.api.broken.clear()
    site.claimer.reconcile("claims")
    assert site.news == ["b", "a", "a"]
    assert site.claimer.failure("a") is None


def test_what_is_refused_again_is_said_once() -> None:
    site = Site(a="10.80.0.2")
    site.api.broken.add("10.80.0.0")
    for _ in range(3):
        with pytest.raises(NeedsHuman):
            site.ask("a")
    assert site.news == ["a"]


def test_those_who_are_refused_stand_behind_those_who_were_not_looked_at_yet() -> None:
    """More than are written at once wait for blocks that cannot be written, and asked first."""
    refused = {f"a{number}": f"10.80.{number >> 8}.{number & 255}" for number in range(2, BATCH + 2)}
    site = Site(**refused, b="10.81.0.2")
    site.api.broken |= {"10.80.0.0", "10.80.1.0", "10.80.2.0"}
    with pytest.raises(NeedsHuman):
        site.ask(*site.wanted)
    assert not site.book.of("b")
    with pytest.raises(NeedsHuman):
        site.claimer.reconcile("claims")
    assert site.book.of("b") == {"10.81.0.2"}


def test_a_conflict_is_said_of_who_waits_once_it_lasts() -> None:
    site = Site(a="10.80.0.2")
    site.api.create = site.api.raced  # type: ignore[method-assign]
    for seconds, is_said in ((0.0, False), (LASTING_SECONDS - 1, False), (LASTING_SECONDS, True)):
        site.seconds = seconds
        with pytest.raises(Conflict):
            site.ask("a")
        assert (site.claimer.failure("a") is not None) is is_said
    assert site.news == ["a"]


def test_a_claim_that_is_used_again_is_written_again() -> None:
    """So that a leader that is about to take it back, on what it knew before, meets a conflict."""
    maker, heir = Site(a="10.80.0.2"), Site(a="10.80.0.2")
    maker.ask("a")
    heir.claimer._cluster = maker.api  # type: ignore[assignment]
    heir.book.take("10.80.0.0", maker.api.blocks["10.80.0.0"])
    heir.ask("a")
    assert maker.api.blocks["10.80.0.0"]["spec"] == {"revision": 2, "claims": {"10.80.0.2": "a"}}
