"""What several requestors want together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.maintenance import ACTIONS, POLICIES, Requestor
from provisioner.rules.requests import merge
from tests.maintenance.samples import at, maintenance, requestor


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


requestors = st.lists(
    st.builds(
        Requestor,
        name=st.sampled_from("abcdef"),
        action=st.sampled_from(ACTIONS),
        policy=st.sampled_from(["WhenIdle", "Now"]),
        image_ref=st.none() | st.sampled_from(["old", "new"]),
        requested_time=st.none() | st.integers(0, 100).map(at),
    ),
    unique_by=lambda r: r.name,
    max_size=4,
)


@given(requestors)
def test_the_order_in_which_they_are_listed_does_not_matter(wishes: list[Requestor]) -> None:
    merged = [merge(maintenance(1, *order)) for order in itertools.permutations(wishes)]
    assert all(m == merged[0] for m in merged)


@given(requestors)
def test_nobody_who_is_heard_gets_less_than_wanted(wishes: list[Requestor]) -> None:
    wanted = merge(maintenance(1, *wishes))
    if wanted is None:
        assert not wishes
        return
    assert {*wanted.heard, *wanted.refused} == set(wishes)
    for wish in wanted.heard:
        assert ACTIONS.index(wanted.action) >= ACTIONS.index(wish.action)
        assert POLICIES.index(wanted.policy) >= POLICIES.index(wish.policy)
        assert wish.image_ref in (None, wanted.image)


@pytest.mark.parametrize(("actions", "keeps"), [(("Reboot",), False), (("Drain",), True), (("Drain", "Reboot"), True)])
def test_who_wants_it_out_of_use_keeps_it_so(actions: tuple[str, ...], keeps: bool) -> None:
    wanted = merge(maintenance(1, *(requestor(f"r{n}", action) for n, action in enumerate(actions))))
    assert wanted is not None
    assert wanted.keeps_drained is keeps
