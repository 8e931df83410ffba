"""What several requestors want together."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.nodes.maintenance import ACTIONS, POLICIES, Requestor
from provisioner.rules.requests import merge
from tests.maintenance.samples import at, maintenance, requestor

ALICE = requestor(requested_time=at(60))


def test_nobody_wants_anything() -> None:
    assert merge(maintenance(1)) is None


def test_the_strongest_action_the_most_urgent_policy_and_the_earliest_deadline() -> None:
    wanted = merge(
        maintenance(
            1,
            requestor("a", "Reboot", policy="Deadline", deadline_time=at(900)),
            requestor("b", "PowerCycle", policy="WhenIdle"),
            requestor("c", "Reimage", policy="Deadline", deadline_time=at(600)),
        )
    )
    assert wanted is not None
    assert (wanted.action, wanted.policy) == ("PowerCycle", "Deadline")
    assert wanted.deadline is not None
    assert wanted.deadline.isoformat() == "2026-01-02T12:10:00+00:00"


def test_of_two_images_the_first_requested_is_heard_and_the_other_counts_for_nothing() -> None:
    late = requestor("a", "PowerCycle", policy="Now", image_ref="new", requested_time=at(60))
    early = requestor("b", "Reimage", image_ref="old", requested_time=at(0))
    wanted = merge(maintenance(1, late, early))
    assert wanted is not None
    assert (wanted.image, wanted.action, wanted.policy) == ("old", "Reimage", "WhenIdle")
    assert wanted.refused == (late,)


ROLLOUT = requestor("rollout", "Reimage", image_ref="new", turn="Waits", requested_time=at(0))


def test_who_waits_for_a_turn_neither_hastens_nor_changes_what_is_done_for_others() -> None:
    late = replace(ROLLOUT, policy="Deadline", deadline_time=at(300))
    alone = merge(maintenance(1, ALICE))
    for turn in ("Waits", "Steered", "Closed"):
        waits = replace(late, turn=turn)
        wanted = merge(maintenance(1, ALICE, waits))
        assert wanted is not None
        assert alone is not None
        assert replace(wanted, waiting=()) == alone
        assert wanted.waiting == (waits,)
        assert not wanted.awaits_turn


def test_where_nobody_has_a_turn_it_says_what_is_wanted_and_that_it_is_waited_for() -> None:
    wanted = merge(maintenance(1, ROLLOUT))
    assert wanted is not None
    assert (wanted.action, wanted.policy, wanted.image, wanted.awaits_turn) == ("Reimage", "WhenIdle", "new", True)
    drain = merge(maintenance(1, replace(ROLLOUT, action="Drain", image_ref=None)))
    assert drain is not None
    assert not drain.keeps_drained, "nobody keeps a server out of use whose turn has not come"


@pytest.mark.parametrize("turn", ["Granted", None])
def test_who_has_a_turn_is_heard(turn: Any) -> None:
    wanted = merge(maintenance(1, ALICE, replace(ROLLOUT, turn=turn)))
    assert wanted is not None
    assert (wanted.action, wanted.image, wanted.awaits_turn, wanted.waiting) == ("Reimage", "new", False, ())


def test_a_person_who_wants_another_image_is_heard_before_a_rollout_that_asked_earlier() -> None:
    person = replace(ALICE, image_ref="old")
    granted = replace(ROLLOUT, turn="Granted")
    wanted = merge(maintenance(1, granted, person))
    assert wanted is not None
    assert (wanted.image, wanted.heard, wanted.refused) == ("old", (person,), (granted,))
    assert wanted.closing is None, "what counts for nothing closes no server"


@pytest.mark.parametrize(
    ("turns", "closing"),
    [
        ((None,), None),
        (("Waits",), None),
        (("Steered",), "PreferNoSchedule"),
        (("Closed",), "NoSchedule"),
        (("Granted",), "NoSchedule"),
        (("Steered", "Closed"), "NoSchedule"),
        (("Waits", "Steered"), "PreferNoSchedule"),
        ((None, "Steered"), "PreferNoSchedule"),
        ((None, "Closed"), "NoSchedule"),
    ],
)
def test_the_strictest_turn_closes_the_server(turns: tuple[Any, ...], closing: str | None) -> None:
    wanted = merge(maintenance(1, *(requestor(f"r{n}", turn=turn) for n, turn in enumerate(turns))))
    assert wanted is not None
    assert wanted.closing == closing


requestors = st.lists(
    st.builds(
        Requestor,
        name=st.sampled_from("abcdef"),
        action=st.sampled_from(ACTIONS),
        policy=st.sampled_from(["WhenIdle", "Now"]),
        image_ref=st.none() | st.sampled_from(["old", "new"]),
        requested_time=st.none() | st.integers(0, 100).map(at),
        turn=st.none() | st.sampled_from(["Waits", "Steered", "Closed", "Granted"]),
    ),
    unique_by=lambda r: r.name,
    max_size=4,
)


@given(requestors)
def test_the_order_in_which_they_are_listed_does_not_matter(wishes: list[Requestor]) -> None:
    first, *others = [merge(maintenance(1, *order)) for order in itertools.permutations(wishes)]
    assert others == [first] * len(others)


@given(requestors)
def test_nobody_who_is_heard_gets_less_than_wanted(wishes: list[Requestor]) -> None:
    wanted = merge(maintenance(1, *wishes))
    if wanted is None:
        assert not wishes
        return
    assert {*wanted.heard, *wanted.refused, *wanted.waiting} == set(wishes)
    assert wanted.awaits_turn is not any(wish.has_turn for wish in wishes)
    for wish in wanted.heard:
        assert ACTIONS.index(wanted.action) >= ACTIONS.index(wish.action)
        assert POLICIES.index(wanted.policy) >= POLICIES.index(wish.policy)
        assert wish.image_ref in (None, wanted.image)


@pytest.mark.parametrize(("actions", "keeps"), [(("Reboot",), False), (("Drain",), True), (("Drain", "Reboot"), True)])
def test_who_wants_it_out_of_use_keeps_it_so(actions: tuple[str, ...], keeps: bool) -> None:
    wanted = merge(maintenance(1, *(requestor(f"r{n}", action) for n, action in enumerate(actions))))
    assert wanted is not None
    assert wanted.keeps_drained is keeps
