"""What the planner is told of servers, made anew only where something changed."""

from __future__ import annotations

from dataclasses import replace

from provisioner.api.upgrade_strategy import DomainCap, UpgradeStrategy
from provisioner.rollout.fleet import Occupancy
from provisioner.rollout.members import Members
from provisioner.rollout.standing import Standing
from tests.rollout.pools import OLD, asked, entry, stands

STRATEGY = UpgradeStrategy()
BUSY = Occupancy(jobs=("Pod jobs/train",))


def named(name: str, standing: Standing) -> Standing:
    server = replace(standing.server, metadata=replace(standing.server.metadata, name=name))
    return replace(standing, server=server)


def fleet() -> dict[str, Standing]:
    return {name: named(name, stands()) for name in ("b", "a", "c")}


def test_while_nothing_changes_every_member_is_the_one_of_before() -> None:
    members, standings, runs = Members(), fleet(), {"a": BUSY}
    before = members.of(standings, runs, STRATEGY)
    after = members.of(dict(standings), dict(runs), UpgradeStrategy())
    assert [id(member) for member in after] == [id(member) for member in before]


def test_of_a_server_that_changed_and_of_it_alone_the_member_is_new() -> None:
    members, standings, runs = Members(), fleet(), {"a": BUSY}
    before = {m.name: m for m in members.of(standings, runs, STRATEGY)}
    standings["b"] = named("b", stands(OLD, asked(entry("Closed"))))
    after = {m.name: m for m in members.of(standings, {}, STRATEGY)}
    assert not before["b"].closed
    assert after["b"].closed
    assert (before["a"].runs, after["a"].runs) == (BUSY, None)
    assert after["c"] is before["c"]


def test_another_strategy_makes_all_of_them_anew() -> None:
    members, standings = Members(), fleet()
    members.of(standings, {}, STRATEGY)
    capped = replace(STRATEGY, domains=(DomainCap(key="rack", max_unavailable=1),))
    assert [m.domains for m in members.of(standings, {}, capped)] == [("r01",)] * 3


def test_they_come_in_the_order_of_their_turns_also_when_one_comes_or_goes() -> None:
    members, standings = Members(), fleet()
    members.of(standings, {}, STRATEGY)
    standings["d"] = named("d", stands(OLD, asked(entry("Granted"))))
    del standings["b"]
    assert [m.name for m in members.of(standings, {}, STRATEGY)] == ["d", "a", "c"]
