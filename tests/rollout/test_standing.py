"""Where a server stands in its pool's rollout, by what is seen of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.nodes.maintenance import Requestor, TimelineEntry
from provisioner.api.pools.node_pool import NodePoolStatus
from provisioner.api.pools.rollout_status import ReleasedImage, RolloutStatus
from provisioner.api.servers.server_status import PowerStatus, UpgradeFailure
from provisioner.rollout.standing import OUT_SECONDS, MemberFacts, RolloutTarget, target_of, without_records
from provisioner.rules.nodes import read_node
from tests.boot import objects
from tests.boot.objects import DIGEST, at, condition
from tests.rollout.pools import NEW, NOW, OLD, TARGET, asked, entry, node, ordered_by, stands

FAILED = UpgradeFailure(image_ref=NEW, time=at(5000), message="NotVerified: GPU 3 is gone")
PERSON = Requestor(name="user-alice", action="Reimage", image_ref="other")


@pytest.mark.parametrize(
    ("sentence", "given", "state"),
    [
        ("with another image in use, it waits", {}, "Outdated"),
        ("with the image in use, it is updated", {"image": NEW}, "Updated"),
        ("not joined, it boots the right image when it boots", {"node": None}, "Absent"),
        (
            "so does one whose Node was only made for it",
            {"node": node(None), "ready": "False"},
            "Absent",
        ),
        ("out of use with another image, it is not the rollout's doing", {"ready": "False"}, "Down"),
        ("out of use with the image for long, it has failed", {"image": NEW, "ready": "False"}, "Failed"),
        ("for a moment, it has not", {"image": NEW, "ready": "False", "now": NOW - 7200 + OUT_SECONDS - 1}, "Down"),
        (
            "nor if somebody cut its power",
            {"image": NEW, "ready": "False", "status": {"power": PowerStatus(state="Off")}},
            "Down",
        ),
        (
            "what failed before keeps its place, also back in use with the old image",
            {"status": {"upgrade_failure": FAILED}},
            "Failed",
        ),
        ("until it gets there after all", {"image": NEW, "status": {"upgrade_failure": FAILED}}, "Updated"),
        ("or a person decides", {"status": {"upgrade_failure": FAILED}, "retried": NOW}, "Outdated"),
        (
            "of a failure with another image nobody speaks any more",
            {"status": {"upgrade_failure": FAILED}, "target": RolloutTarget(pool="gpu", name="third")},
            "Outdated",
        ),
    ],
)
def test_it_stands(sentence: str, given: dict[str, Any], state: str) -> None:
    assert stands(given.pop("image", OLD), **given).state == state, sentence


def test_a_pool_moves_to_its_image_since_the_rollout_began_or_since_it_has_no_other() -> None:
    def since(**status: Any) -> str | None:
        found = objects.pool(image_ref=NEW)
        return target_of(replace(found, status=NodePoolStatus(**status)), None).since

    began = RolloutStatus(image_ref=NEW, started_time=at(60))
    first = ReleasedImage(image_ref=NEW, time=at(0))
    assert since(released=first) == at(0)
    assert since(released=replace(first, image_ref=OLD)) is None, "it begins now"
    assert since(released=first, rollout=began) == at(60)
    assert since(released=first, rollout=replace(began, image_ref=OLD)) is None


def test_what_is_remembered_between_two_looks_holds_no_record_of_a_maintenance() -> None:
    ours = asked(timeline=(TimelineEntry(time=at(0), phase="Waiting", reason="Requested", message="…"),))
    kept = without_records(stands(OLD, ours))
    assert kept.own is not None
    assert (kept.own.name, kept.own.status.timeline) == (ours.name, ())
    assert without_records(stands(OLD)).own is None


def test_of_a_node_that_is_not_there_nothing_is_seen() -> None:
    assert read_node(None) is None
    assert stands(node=read_node(None)).state == "Absent"


def test_images_are_the_same_if_their_digests_are() -> None:
    renamed = RolloutTarget(pool="gpu", name="renamed", digest=DIGEST)
    assert stands(OLD, status={"image_digest": DIGEST}, target=renamed).state == "Updated"


def test_what_the_bad_image_has_left_out_of_use_goes_back_with_the_others() -> None:
    back = RolloutTarget(pool="gpu", name=OLD)
    left: dict[str, Any] = {"status": {"upgrade_failure": FAILED}, "verified": "False", "target": back}
    assert stands(NEW, **left).state == "Outdated"
    assert stands(NEW, **{**left, "ready": "False"}).state == "Down", "one that is silent cannot be asked"
    assert stands(OLD, **{**left, "status": {}}).state == "Failed", "it fails with what it had before, too"


def test_it_is_on_its_way_while_the_rollout_has_it_disturbed_and_down_while_somebody_else_has() -> None:
    ours = asked(phase="Rebooting", boots=NEW)
    assert stands(OLD, ours, ready="False").state == "Updating"
    waits = asked(Requestor(name="user-alice", action="Reboot"), entry("Closed"), phase="Rebooting", boots=OLD)
    assert stands(OLD, waits, ready="False").state == "Down"
    assert stands(NEW, waits).in_use is False


@pytest.mark.parametrize(
    ("sentence", "ended", "state"),
    [
        ("with the image, it has failed", asked(phase="Failed", boots=NEW, finished_time=at(4000)), "Failed"),
        ("before it booted, it has not", asked(phase="Failed", finished_time=at(4000)), "Outdated"),
        (
            "with an image before this one, that is over",
            asked(phase="Failed", boots="third", finished_time=at(4000)),
            "Outdated",
        ),
        (
            "a person's own, it is that person's",
            asked(PERSON, phase="Failed", boots=NEW, finished_time=at(4000)),
            "Outdated",
        ),
    ],
)
def test_if_a_maintenance_failed(sentence: str, ended: Any, state: str) -> None:
    assert stands(OLD, ended).state == state, sentence


def test_an_ordered_reboot_that_did_not_bring_the_image_failed_with_it_unless_the_server_had_it() -> None:
    ordered = asked(Requestor(name="user-alice", action="Reboot"), phase="Failed", boots=NEW, finished_time=at(4000))
    begun = replace(TARGET, since=at(3600))
    assert stands(OLD, ordered, status={"assigned_image_ref": OLD}, target=begun).state == "Failed"
    assert stands(OLD, ordered, status={"assigned_image_ref": NEW}, target=begun).failure is None


@pytest.mark.parametrize("since", [at(7000), None])
def test_a_reboot_that_failed_before_a_pool_goes_back_keeps_no_server_from_going_back(since: str | None) -> None:
    ordered = asked(Requestor(name="user-alice", action="Reboot"), phase="Failed", boots=NEW, finished_time=at(4000))
    going_back = replace(TARGET, since=since)
    assert stands(OLD, ordered, status={"assigned_image_ref": OLD}, target=going_back).state == "Outdated"


def test_a_failure_is_put_on_record_with_its_words_and_forgotten_only_by_a_person() -> None:
    ended = asked(
        phase="Failed",
        boots=NEW,
        finished_time=at(4000),
        conditions=(condition("Succeeded", "False", "NotVerified", "GPU 3 is gone"),),
    )
    found = stands(OLD, ended).failure
    assert found is not None
    assert (found.image_ref, found.maintenance_ref, found.message) == (NEW, "r01-u01-1", "NotVerified: GPU 3 is gone")
    assert stands(NEW, ended).failure is None, "it got there"
    assert stands(OLD, ended, retried=NOW).state == "Outdated"


def left(standing: MemberFacts) -> str | None:
    """For which reason its rollout leaves it alone."""
    return standing.excluded.reason if standing.excluded is not None else None


def test_held_and_excluded_ones_say_so() -> None:
    assert left(stands(OLD, node=node(held=True))) == "Held"
    assert left(stands(OLD, upgrades="Excluded")) == "Excluded"
    assert left(stands(OLD, upgrades="Follow")) is None


def test_what_a_person_booted_once_is_not_undone_behind_that_persons_back() -> None:
    once = asked(PERSON, phase="Completed", boots="other")
    status = {**ordered_by("r01-u01-1", "other"), "assigned_image_ref": NEW}
    under_way = replace(TARGET, since=at(-60))
    assert left(stands("other", once, status=status, target=under_way)) == "Once"
    ours = asked(entry(image="other"), phase="Completed", boots="other")
    assert left(stands("other", ours, status=status, target=under_way)) is None
    assert left(stands("other", status=status, target=under_way)) is None, "nobody knows any more who asked"
    later = replace(TARGET, since=at(60))
    assert left(stands("other", once, status=status, target=later)) is None, (
        "a rollout that begins later takes it along"
    )
    assert left(stands("other", once, status=status)) is None, "so does one that begins now"


def test_a_server_that_the_image_is_not_made_for_is_never_let_begin() -> None:
    assert left(stands(OLD, target=replace(TARGET, architecture="arm64"))) == "Architecture"
    assert left(stands(OLD, target=replace(TARGET, architecture="x86_64"))) is None


def test_a_server_that_is_emptied_for_its_turn_is_on_its_way_also_out_of_another_pool() -> None:
    for status in ({}, {"node_pool_ref": "other"}):
        assert stands(OLD, asked(entry("Granted"), phase="Draining"), status=status).state == "Updating"


def test_a_server_that_a_person_reboots_into_the_image_is_on_its_way_to_it() -> None:
    ordered = asked(Requestor(name="user-alice", action="Reboot"), phase="Draining", action="Reboot", image_ref=NEW)
    assert stands(OLD, ordered).state == "Updating"
    assert stands(NEW, ordered).state == "Down", "one that has it is out of use for a moment"
    elsewhere = {"status": {"node_pool_ref": "other"}}
    assert stands(OLD, ordered, **elsewhere).state == "Down", "it stays in its pool"
    drained = asked(Requestor(name="user-alice", action="Drain"), phase="Drained", action="Drain")
    assert (stands(OLD, drained).state, stands(OLD, drained).returns) == ("Down", False)
    kept = asked(Requestor(name="user-alice", action="Drain"), phase="Drained", action="Reboot", boot_id_after="b1")
    assert stands(OLD, kept).returns is False, "it was booted for somebody, and is kept drained for another"


def test_what_was_checked_in_the_boot_before_says_nothing_of_the_boot_that_runs() -> None:
    rebooted = node("b2")
    early = NOW - 7200 + OUT_SECONDS - 1
    found = stands(NEW, node=rebooted, now=early)
    assert (found.state, found.in_use) == ("Down", False)
    assert found.again == early + 1, "it has failed if it is not verified by then"
