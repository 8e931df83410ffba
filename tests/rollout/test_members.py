"""What the planner is told of servers, made anew only where something changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.api import Image
from provisioner.api.pools.rollout_status import ReleasedImage, RolloutStatus, RolloutStop
from provisioner.api.pools.upgrade_strategy import DomainCap, UpgradeStrategy
from provisioner.rollout.course import Course
from provisioner.rollout.fleet import Occupancy
from provisioner.rollout.members import Members, halted_by
from provisioner.rollout.standing import MemberFacts
from tests.boot import objects
from tests.boot.objects import at, condition
from tests.rollout.pools import NEW, OLD, asked, entry, stands

STRATEGY = UpgradeStrategy()
COURSE = Course(
    released=ReleasedImage(image_ref=OLD, time=at(0)),
    rollout=RolloutStatus(image_ref=NEW, started_time=at(0)),
    history=(),
)
BUSY = Occupancy(jobs=("Pod jobs/train",))


def named(name: str, standing: MemberFacts) -> MemberFacts:
    server = replace(standing.server, metadata=replace(standing.server.metadata, name=name))
    return replace(standing, server=server)


def fleet() -> dict[str, MemberFacts]:
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


def judged(reason: str) -> Image:
    found, said = objects.image(NEW), condition("Verified", "False", reason, "no key of the site")
    return replace(found, status=replace(found.status, conditions=(*found.status.conditions, said)))


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (objects.image(NEW), None),
        (None, "Image 'new' does not exist: publish it"),
        (objects.image(NEW, available="False"), "Image 'new' cannot be booted: root is missing"),
        (judged("Altered"), "Image 'new' is not booted: no key of the site"),
        (judged("Revoked"), "assign another Image"),
    ],
    ids=["it can be booted", "it does not exist", "no boot host has it", "it is not believed", "it was revoked"],
)
def test_nobody_follows_to_an_image_that_cannot_be_booted(image: Image | None, words: str | None) -> None:
    halted = halted_by(objects.pool(image_ref=NEW), COURSE, image)
    assert (halted is None) if words is None else (halted is not None and words in halted)


def test_nobody_follows_where_the_rollout_was_stopped_whatever_the_image_is_like() -> None:
    assert COURSE.rollout is not None
    stop = RolloutStop(time=at(60), reason="Failures", message="2 servers failed")
    stopped = replace(COURSE, rollout=replace(COURSE.rollout, stopped=stop))
    for image in (objects.image(NEW), None):
        assert halted_by(objects.pool(image_ref=NEW), stopped, image) == "2 servers failed"
