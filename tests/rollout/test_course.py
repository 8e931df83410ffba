"""Which image a pool is on its way to, and which one it has released."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from provisioner.api import NodePool
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import Requestor
from provisioner.api.pools.node_pool import NodePoolStatus
from provisioner.api.pools.rollout_status import ReleasedImage, RolloutRecord, RolloutStatus
from provisioner.api.pools.upgrade_strategy import Canary, UpgradeStrategy
from provisioner.api.servers.server_status import UpgradeFailure
from provisioner.rollout.course import Course, assign, follow_plan, follows_up, set_course, stop_at_failures
from provisioner.rollout.plan import Plan
from provisioner.rollout.stage import StageState
from provisioner.rollout.standing import RolloutTarget
from tests.boot import objects
from tests.boot.objects import at
from tests.rollout.pools import NEW, OLD, TARGET, asked, stands

MOMENT = parse_time(at(7200))
RELEASED = ReleasedImage(image_ref=OLD, time=at(0), verified_time=at(60))
UNDER_WAY = RolloutStatus(image_ref=NEW, previous_image_ref=OLD, started_time=at(3600))


def pool(wanted: str = NEW, *, strategy: UpgradeStrategy | None = None, **status: Any) -> NodePool:
    made = objects.pool(image_ref=wanted, upgrade_strategy=strategy or UpgradeStrategy())
    return replace(made, status=NodePoolStatus(**{"released": RELEASED, **status}))


def planned(passed: int) -> Plan:
    return Plan(stage=StageState(name="Rest", limit=1, words="", passed=passed), held={})


def test_the_first_image_of_a_pool_is_released_at_once_and_begins_no_rollout() -> None:
    course = set_course(pool(released=None), [stands(None, node=None)], MOMENT)
    assert (course.released.image_ref, course.released.verified_time, course.rollout) == (NEW, None, None)


def test_of_a_pool_that_has_no_record_what_most_servers_run_is_released_and_the_rest_is_a_rollout() -> None:
    course = set_course(pool(released=None), [stands(OLD), stands(OLD), stands(NEW)], MOMENT)
    assert course.released.image_ref == OLD
    assert course.rollout is not None
    assert (course.rollout.image_ref, course.rollout.passed) == (NEW, 0)


def test_while_nobody_was_ever_in_use_with_it_the_next_image_takes_its_place_without_a_canary() -> None:
    unproven = replace(RELEASED, verified_time=None)
    course = set_course(pool(released=unproven), [stands(OLD, ready="False")], MOMENT)
    assert (course.released.image_ref, course.rollout) == (NEW, None)
    proven = set_course(pool(released=unproven), [stands(OLD)], MOMENT)
    assert proven.released == replace(RELEASED, verified_time=at(7200).replace(".000000Z", "Z"))
    assert proven.rollout is not None


def test_an_image_that_passed_before_and_is_just_coming_back_lets_no_other_one_pass() -> None:
    """Undone and done again: it is released at once, before anybody is in use with it."""
    coming = replace(RELEASED, image_ref=NEW, verified_time=None)
    course = set_course(pool("third", released=coming, rollout=UNDER_WAY), [stands(OLD)], MOMENT)
    assert course.released == coming
    assert course.rollout is not None
    assert (course.rollout.image_ref, course.rollout.passed) == ("third", 0)


def test_a_power_failure_of_the_whole_pool_does_not_release_what_has_not_passed() -> None:
    out = [stands(OLD, ready="False")]
    course = set_course(pool(), out, MOMENT)
    assert course.released == RELEASED
    assert course.rollout is not None


def test_to_go_back_half_way_asks_for_no_stage_and_puts_the_bad_image_on_record() -> None:
    course = set_course(pool(OLD, rollout=UNDER_WAY), [stands(NEW, target=RolloutTarget(pool="gpu", name=OLD))], MOMENT)
    assert course.rollout is not None
    assert (course.rollout.image_ref, course.rollout.passed) == (OLD, 1)
    assert [(record.image_ref, record.outcome, record.updated) for record in course.history] == [(NEW, "Superseded", 1)]
    assert course.history[0].previous_image_ref == OLD


def test_an_image_that_was_brought_everywhere_before_needs_no_canary_and_one_that_was_not_does() -> None:
    def record(outcome: Any) -> RolloutRecord:
        return RolloutRecord(
            image_ref="third", started_time=at(0), ended_time=at(60), outcome=outcome, updated=3, failed=0
        )

    def passed(outcome: Any) -> int | None:
        course = set_course(pool("third", history=(record(outcome),)), [stands()], MOMENT)
        return course.rollout.passed if course.rollout is not None else None

    assert passed("Completed") == 1
    assert passed("Superseded") == 0


def test_it_stops_at_so_many_failures_and_goes_on_once_a_person_has_decided() -> None:
    course = set_course(pool(rollout=UNDER_WAY), [stands()], MOMENT)
    stopped = stop_at_failures(course, pool(), 1, MOMENT).rollout
    assert stopped is not None
    assert stopped.stopped is not None
    assert "kubectl provision rollout undo gpu" in stopped.stopped.message
    twice = UpgradeStrategy(max_failures=2)
    assert _stopped(pool(strategy=twice, rollout=UNDER_WAY), 1) is False
    assert _stopped(pool(rollout=stopped), 0) is True, "also when the server that failed is gone"
    assert _stopped(pool(rollout=stopped, strategy=UpgradeStrategy(retried_time=at(7201))), 0) is False
    assert _stopped(pool(rollout=stopped, strategy=UpgradeStrategy(retried_time=at(7199))), 0) is True


def _stopped(of: NodePool, failed: int) -> bool:
    found = stop_at_failures(set_course(of, [stands()], MOMENT), of, failed, MOMENT).rollout
    return found is not None and found.stopped is not None


def test_what_has_passed_the_canary_is_released_and_stays_so() -> None:
    course = set_course(pool(rollout=UNDER_WAY), [stands(NEW), stands()], MOMENT)
    before = follow_plan(course, pool(), [stands(NEW), stands()], planned(0), MOMENT)
    assert before.released.image_ref == OLD
    after = follow_plan(course, pool(), [stands(NEW), stands()], planned(1), MOMENT)
    assert (after.released.image_ref, after.released.verified_time is None) == (NEW, False)
    assert after.rollout is not None
    assert after.rollout.completed_time is None


def test_it_is_complete_without_those_that_are_left_alone_or_out_of_use() -> None:
    of = pool(rollout=UNDER_WAY, strategy=UpgradeStrategy(canary=Canary(count=0)))
    members = [stands(NEW), stands(upgrades="Excluded"), stands(ready="False"), stands(node=None)]
    done = follow_plan(set_course(of, members, MOMENT), of, members, planned(1), MOMENT)
    assert done.rollout is not None
    assert done.rollout.completed_time is not None
    assert [record.outcome for record in done.history] == ["Completed"]
    for other in (stands(), stands(OLD, asked(phase="Rebooting", boots=NEW))):
        waits = follow_plan(set_course(of, members, MOMENT), of, [*members, other], planned(1), MOMENT)
        assert waits.rollout is not None
        assert waits.rollout.completed_time is None


def test_it_is_not_complete_while_a_server_is_booted_for_somebody_and_is_once_a_person_keeps_that_drained() -> None:
    of = pool(rollout=UNDER_WAY, strategy=UpgradeStrategy(canary=Canary(count=0)))
    for action, phase, is_complete in (("Reboot", "Rebooting", False), ("Drain", "Drained", True)):
        person = Requestor(name="user-alice", action=action)  # type: ignore[arg-type]
        members = [stands(NEW), stands(OLD, asked(person, phase=phase, action=action, image_ref=OLD))]
        done = follow_plan(set_course(of, members, MOMENT), of, members, planned(1), MOMENT).rollout
        assert done is not None
        assert (done.completed_time is not None) is is_complete, action


def test_a_complete_rollout_is_under_way_again_for_one_that_comes_late_and_is_on_record_once() -> None:
    of = pool(rollout=UNDER_WAY, strategy=UpgradeStrategy(canary=Canary(count=0)))
    done = follow_plan(set_course(of, [stands(NEW)], MOMENT), of, [stands(NEW)], planned(1), MOMENT)
    assert done.rollout is not None
    over = pool(rollout=done.rollout, released=done.released, history=done.history, strategy=of.spec.upgrade_strategy)
    late = [stands(NEW), stands(OLD)]
    again = set_course(over, late, MOMENT)
    assert again.is_under_way
    assert again.rollout is not None
    assert follows_up(again.rollout, again.history), "its jobs are not compared any more"
    both = [stands(NEW), stands(NEW)]
    ended = follow_plan(again, over, both, planned(1), MOMENT)
    assert [(record.outcome, record.updated) for record in ended.history] == [("Completed", 2)]
    under_way = replace(over, status=replace(over.status, rollout=again.rollout))
    third = replace(under_way, spec=replace(under_way.spec, image_ref="third"))
    assert set_course(third, late, MOMENT).history == done.history, "it is not superseded, but was complete before"


def test_a_server_is_assigned_what_it_is_in_use_with_and_nothing_that_is_gone() -> None:
    course, images = set_course(pool(rollout=UNDER_WAY), [stands()], MOMENT), {OLD, NEW}
    has_old: dict[str, Any] = {"status": {"assigned_image_ref": OLD}}
    assert assign(stands(NEW, **has_old), course, TARGET, images).image == NEW
    assert assign(stands(OLD, **has_old), course, TARGET, images).image == OLD
    assert assign(stands(OLD, ready="False", **has_old), course, TARGET, images).image == OLD
    assert assign(stands(OLD), course, TARGET, images).image == OLD, "the released one, when it is first seen in use"
    assert assign(stands(None, node=None, **has_old), course, TARGET, images).image is None, "whatever is released"
    assert assign(stands(OLD, ready="False", **has_old), course, TARGET, {NEW}).image is None
    assert assign(stands(OLD, acceptance="Rejected", **has_old), course, TARGET, images).image is None


def test_to_go_back_after_the_canary_needs_none_either() -> None:
    passed = replace(RELEASED, image_ref=NEW)
    course = set_course(pool(OLD, released=passed, rollout=UNDER_WAY), [stands(NEW)], MOMENT)
    assert course.rollout is not None
    assert (course.rollout.image_ref, course.rollout.passed) == (OLD, 1)


def test_it_is_not_complete_with_a_server_that_failed_unless_it_was_before() -> None:
    failure = UpgradeFailure(image_ref=NEW, time=at(5000), message="NotVerified: GPU 3 is gone")
    of = pool(rollout=UNDER_WAY, strategy=UpgradeStrategy(canary=Canary(count=0)))
    members = [stands(NEW), stands(OLD, status={"upgrade_failure": failure})]
    waits = follow_plan(set_course(of, members, MOMENT), of, members, planned(1), MOMENT).rollout
    assert waits is not None
    assert waits.completed_time is None
    moved = pool(rollout=replace(UNDER_WAY, moved_time=at(3600)))
    over = follow_plan(set_course(moved, members, MOMENT), moved, members, planned(1), MOMENT).rollout
    assert over is not None
    assert over.completed_time is not None


MOVER: dict[str, Any] = {"node_pool_ref": "other"}


def test_a_pool_that_never_had_another_image_begins_a_rollout_for_those_alone_who_move_in() -> None:
    released = replace(RELEASED, image_ref=NEW)
    for verified, passed in ((at(60), 1), (None, 0)):
        of = pool(released=replace(released, verified_time=verified))
        course = set_course(of, [stands(OLD, status=MOVER)], MOMENT)
        assert course.rollout is not None
        assert (course.rollout.moved_time is not None, course.rollout.passed) == (True, passed)
    assert set_course(pool(released=released), [stands(NEW)], MOMENT).rollout is None


def test_a_server_stays_in_its_pool_and_with_its_image_until_its_turn_and_then_changes_both_together() -> None:
    proven = set_course(pool(rollout=UNDER_WAY), [stands()], MOMENT)
    unproven = replace(proven, released=replace(RELEASED, verified_time=None))
    images = {OLD, NEW, "third"}

    def assigned(course: Course = proven, *, ready: str = "True", **status: Any) -> tuple[str | None, str | None]:
        found = assign(
            stands(OLD, ready=ready, status={"assigned_image_ref": "third", **status}), course, TARGET, images
        )
        return found.image, found.pool

    assert assigned(**MOVER) == ("third", "other")
    assert assigned(ready="False", **MOVER) == (OLD, "gpu"), "out of use by itself it comes with its next boot"
    assert assigned(unproven, ready="False", **MOVER) == ("third", "other"), "where somebody was in use with the image"
    sent_back = {**MOVER, "assigned_node_pool_ref": "gpu"}
    assert assigned(unproven, ready="False", **sent_back) == ("third", "gpu"), "to where it was in use last"
    arrived = {"node_pool_ref": "gpu", "assigned_node_pool_ref": "other"}
    assert assigned(**arrived) == (OLD, "gpu")
    assert assigned(ready="False", **arrived) == (OLD, "gpu")
    assert assigned(unproven, ready="False", **arrived) == ("third", "other")


def test_those_who_move_in_come_along_with_a_rollout_under_way_which_stays_on_trial() -> None:
    course = set_course(pool(rollout=UNDER_WAY), [stands(OLD, status=MOVER)], MOMENT)
    assert course.rollout == UNDER_WAY
    assert not follows_up(UNDER_WAY, course.history)
