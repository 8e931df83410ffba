"""A harness that finds nothing proves nothing: each fault put into the rollout here must be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from provisioner.rollout import controller, plan
from provisioner.rollout.course import Assignment
from provisioner.rollout.wait import MemberWait
from tests.maintenance.chaos.story import InvariantBroken
from tests.rollout.chaos.scenarios import SCENARIOS, run
from tests.rollout.chaos.troubles import TROUBLES

SCENARIO = {scenario.name: scenario for scenario in SCENARIOS}
TROUBLE = {trouble.name: trouble for trouble in TROUBLES}
Break = Callable[[pytest.MonkeyPatch], None]


def _ignores_the_canary(monkeypatch: pytest.MonkeyPatch) -> None:
    look = plan.find_stage
    monkeypatch.setattr(plan, "find_stage", lambda *args: replace(look(*args), name="Rest", limit=99, until=None))


def _assigns_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        controller, "assign", lambda _s, _c, target, _i: Assignment(image=target.name, pool=target.pool)
    )


def _releases_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = controller.follow_plan

    def release(course: Any, pool: Any, *args: Any) -> Any:
        found = follow(course, pool, *args)
        return replace(found, released=replace(found.released, image_ref=pool.spec.image_ref))

    monkeypatch.setattr(controller, "follow_plan", release)


def _disturbs_whom_a_person_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.rollout.standing._exclusion", lambda server, node, target: None)


def _disturbs_whom_a_person_excludes(monkeypatch: pytest.MonkeyPatch) -> None:
    def held(server: Any, node: Any, target: Any) -> MemberWait | None:
        return MemberWait("Held", "it is held") if node is not None and node.held else None

    monkeypatch.setattr("provisioner.rollout.standing._exclusion", held)


def _forgets_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.rollout.standing._failure", lambda *args: None)


def _ignores_the_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.rollout.room.RolloutCapacity.full_wait", lambda self: None)


def _ignores_racks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.rollout.room.RolloutCapacity.domain_wait", lambda self, member: None)


def _does_not_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has jobs ended at once where it should tell them before."""
    find = plan.find_interrupted

    def end_now(busy: Any, room: Any, warning: float, now: float) -> Any:
        chosen, too_wide = find(busy, room, warning, now)
        return [replace(each, at=now) for each in chosen], too_wide

    monkeypatch.setattr(plan, "find_interrupted", end_now)


def _is_done_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provisioner.rollout.course._is_complete", lambda standings, **_: True)


def _stops_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = controller.stop_at_failures
    monkeypatch.setattr(
        controller, "stop_at_failures", lambda course, pool, failed, now: stop(course, pool, failed + 1, now)
    )


@pytest.mark.parametrize(
    ("fault", "scenario", "trouble", "words"),
    [
        (_ignores_the_canary, "an idle pool", None, "on their way to it, in a stage for 1"),
        (_assigns_too_early, "an idle pool", "all are rebooted behind our back", "which has not passed the canary"),
        (_releases_too_early, "an idle pool", None, "is released, though it has not passed the canary"),
        (_disturbs_whom_a_person_holds, "one is held, one excluded", None, "s1 is left alone by a person"),
        (_disturbs_whom_a_person_excludes, "one is held, one excluded", None, "s2 is left alone by a person"),
        (_forgets_failures, "an idle pool", "the image does not boot", "s1 boots twice for s-image-new"),
        (_ignores_the_caps, "undone half way", None, "are on their way or failed: 2"),
        (_ignores_racks, "one of each rack", None, "of s-rack are out of use: 1"),
        (_does_not_warn, "by a deadline", None, "after it was warned, and was promised|was not warned"),
        (_is_done_too_early, "as jobs end, in waves", None, "is called complete, and"),
        (_stops_for_nothing, "an idle pool", None, "but only .. failed with it"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else None,
)
def test_a_broken_rollout_is_found(
    monkeypatch: pytest.MonkeyPatch, fault: Break, scenario: str, trouble: str | None, words: str
) -> None:
    fault(monkeypatch)
    strike = None if trouble is None else (1, "before", TROUBLE[trouble])
    with pytest.raises(InvariantBroken, match=words):
        run(SCENARIO[scenario], strike=strike, live=True)
