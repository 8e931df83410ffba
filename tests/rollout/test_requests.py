"""What a plan makes of the entries that are there."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from provisioner.api.nodes.maintenance import Requestor
from provisioner.rollout.plan import Plan
from provisioner.rollout.requests import Asker, RequestWrite, find_acts, on_newest
from provisioner.rollout.stage import StageState
from tests.rollout.pools import NEW, NOW, OLD, TARGET, asked, stands

NAME = "r01-u01"
ASKER = Asker(target=TARGET, user="rollout")
REST = StageState(name="Rest", limit=1, words="all servers may follow", passed=1)
CLOSED = Plan(stage=REST, closed=frozenset({NAME}), held={})


def acts(*maintenances: Any, plan: Plan = CLOSED, staging: int = 1) -> list[RequestWrite]:
    return find_acts({NAME: stands(OLD, *maintenances)}, plan, ASKER, staging, datetime.fromtimestamp(NOW, UTC))


def closed(**changes: Any) -> Requestor:
    """The entry as the plan makes it, without room to fetch the image ahead."""
    (act,) = acts(staging=0)
    assert act.entry is not None
    return replace(act.entry, **changes)


def test_what_is_asked_for_already_is_not_written_again_whenever_it_was_asked() -> None:
    assert acts(asked(closed(requested_time="2026-01-01T00:00:00Z")), staging=0) == []
    assert acts(asked(closed(staging="Now"))) == []


def test_whatever_else_is_asked_for_is_written_and_fetching_goes_on() -> None:
    for other in ({"image_ref": "older"}, {"user": "somebody"}, {"turn": "Steered"}, {"message": "another pool"}):
        (act,) = acts(asked(closed(staging="Now", **other)), staging=0)
        assert act.entry is not None
        assert (act.entry.image_ref, act.entry.turn, act.entry.staging) == (NEW, "Closed", "Now"), other


def test_what_is_filed_while_there_is_room_fetches_the_image_at_once() -> None:
    (act,) = acts()
    assert act.entry is not None
    assert act.entry.staging == "Now"


def test_what_waits_fetches_the_image_once_there_is_room() -> None:
    (act,) = acts(asked(closed()))
    assert act.entry == closed(staging="Now")


def test_what_was_just_filed_is_not_written_again_before_the_executor_has_seen_it() -> None:
    assert acts(asked(closed(), phase=None)) == []


def test_where_its_end_is_decided_nothing_is_asked_for_any_more() -> None:
    assert acts(asked(closed(image_ref="older"), boots="older"), staging=0) == []


def test_it_is_written_on_the_newest_copy_where_only_words_have_changed_since() -> None:
    own = asked(closed())
    (act,) = acts(own)
    newer = replace(own, metadata=replace(own.metadata, resource_version="2"))
    assert on_newest(act, [replace(newer, status=replace(newer.status, next_step="waits"))]).own is not own
    for changed in (
        replace(newer, status=replace(newer.status, phase="Claiming")),
        replace(newer, spec=replace(newer.spec, requestors=())),
        asked(closed(), boots=NEW),
        replace(newer, metadata=replace(newer.metadata, deletion_timestamp="2026-01-02T12:00:00Z")),
    ):
        assert on_newest(act, [changed]).own is own, "it meets a conflict, and is decided on anew"
