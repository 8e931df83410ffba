"""What the words of a request condition mean, and which are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
)
from provisioner.api.nodes.maintenance import POLICIES
from provisioner.maintenance.requests.request import (
    ACTION_OF,
    ParsedRequest,
    RequestRefusal,
    read_ask,
    read_requests,
)
from provisioner.rules.nodes import NodeView, ObservedCondition

NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def ask(type_: str, reason: str, message: str = "") -> ParsedRequest | RequestRefusal:
    return read_ask(ObservedCondition(type=type_, status="True", reason=reason, message=message, time=NOON), NOON)


@pytest.mark.parametrize(
    ("type_", "reason", "message", "expected"),
    [
        (
            REBOOT_REQUESTED,
            "WhenIdle",
            "new kernel",
            ParsedRequest(policy="WhenIdle", deadline=None, image=None),
        ),
        (REBOOT_REQUESTED, "", "", ParsedRequest(policy="WhenIdle", deadline=None, image=None)),
        (POWER_CYCLE_REQUESTED, "Now", "", ParsedRequest(policy="Now", deadline=None, image=None)),
        (DRAIN_REQUESTED, "Now", "fan", ParsedRequest(policy="Now", deadline=None, image=None)),
        (
            REIMAGE_REQUESTED,
            "WhenIdle",
            "please use image=gpu-node-24.04, thanks",
            ParsedRequest(policy="WhenIdle", deadline=None, image="gpu-node-24.04"),
        ),
        (
            REBOOT_REQUESTED,
            "Deadline",
            "deadline=+30m for the patch",
            ParsedRequest(policy="Deadline", deadline=NOON + timedelta(minutes=30), image=None),
        ),
        (
            REBOOT_REQUESTED,
            "Deadline",
            "deadline=2026-01-03T14:00:00+02:00 deadline=2026-01-03T14:00:00+02:00",
            ParsedRequest(policy="Deadline", deadline=datetime(2026, 1, 3, 12, tzinfo=UTC), image=None),
        ),
        (
            REIMAGE_REQUESTED,
            "Deadline",
            "image=b deadline=+1d",
            ParsedRequest(policy="Deadline", deadline=NOON + timedelta(days=1), image="b"),
        ),
    ],
)
def test_words_mean_what_they_say(type_: str, reason: str, message: str, expected: ParsedRequest) -> None:
    assert ask(type_, reason, message) == expected


@pytest.mark.parametrize(
    ("type_", "reason", "message", "observed"),
    [
        (REBOOT_REQUESTED, "Immediately", "", "reason 'Immediately'"),
        (REBOOT_REQUESTED, "now", "", "reason 'now'"),
        (REBOOT_REQUESTED, "Deadline", "tonight", "no word deadline="),
        (REBOOT_REQUESTED, "Deadline", "deadline=tonight", "deadline=tonight"),
        (REBOOT_REQUESTED, "Deadline", "deadline=+30", "deadline=+30"),
        (REBOOT_REQUESTED, "Deadline", "deadline=-30m", "deadline=-30m"),
        (REBOOT_REQUESTED, "Deadline", "deadline=+٣h", "deadline=+٣h"),
        (REBOOT_REQUESTED, "Deadline", "deadline=2026-01-03T14:00:00", "deadline=2026-01-03T14:00:00"),
        (REBOOT_REQUESTED, "Deadline", "deadline=2026-01-03", "deadline=2026-01-03"),
        (REBOOT_REQUESTED, "Deadline", "deadline=2025-12-31T12:00:00Z", "which is 2025-12-31T12:00:00Z"),
        (REBOOT_REQUESTED, "Deadline", "deadline=+99999d", "deadline=+99999d"),
        (REBOOT_REQUESTED, "Deadline", "deadline=+1h deadline=+2h", "2 different words deadline="),
        (REBOOT_REQUESTED, "WhenIdle", "deadline=+1h", "deadline=+1h with reason WhenIdle"),
        (REBOOT_REQUESTED, "Now", "deadline=+1h", "deadline=+1h with reason Now"),
        (REIMAGE_REQUESTED, "WhenIdle", "image=a image=b", "2 different words image="),
        (REIMAGE_REQUESTED, "WhenIdle", "image=", "image="),
        (REIMAGE_REQUESTED, "WhenIdle", "image=Ubuntu", "image=Ubuntu"),
        (REIMAGE_REQUESTED, "WhenIdle", "image=a;rm", "image=a;rm"),
        (REIMAGE_REQUESTED, "WhenIdle", "image=" + "a" * 64, "image=aaa"),
        (DRAIN_REQUESTED, "WhenIdle", "image=a", "image=a with a request to drain"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_remedy(type_: str, reason: str, message: str, observed: str) -> None:
    refusal = ask(type_, reason, message)
    assert isinstance(refusal, RequestRefusal)
    assert observed in refusal.observed
    assert refusal.expected
    assert refusal.remedy
    assert type_ in refusal.message


def node(*conditions: Any) -> NodeView:
    return NodeView({"metadata": {"name": "n"}, "status": {"conditions": list(conditions)}})


def test_of_duplicates_the_last_true_one_counts() -> None:
    found = read_requests(
        node(
            {"type": REBOOT_REQUESTED, "status": "True", "message": "first"},
            {"type": REBOOT_REQUESTED, "status": "True", "message": "second"},
            {"type": REBOOT_REQUESTED, "status": "False", "message": "third"},
        )
    )
    assert [c.message for c in found.values()] == ["second"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"status": None},
        {"status": {"conditions": None}},
        node("text", None, 4, {}, {"type": REBOOT_REQUESTED}).body,
    ],
)
def test_what_is_no_condition_asks_for_nothing(body: dict[str, Any]) -> None:
    assert read_requests(NodeView(body)) == {}


@pytest.mark.parametrize("time", [None, "yesterday", 4, "2026-01-02T12:00:00", "9999-99-99T00:00:00Z"])
def test_a_time_that_cannot_be_read_is_no_time(time: Any) -> None:
    condition = {"type": REBOOT_REQUESTED, "status": "True", "lastTransitionTime": time, "reason": None}
    found = read_requests(node(condition))[REBOOT_REQUESTED]
    assert (found.time, found.reason, found.message) == (None, "", "")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


REST: Final = {"reason": json_values, "message": json_values, "lastTransitionTime": json_values}
CONDITIONS: Final = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from([*ACTION_OF, "Ready"]) | json_values,
        "status": st.sampled_from(["True", "False", "Unknown"]) | json_values,
        **REST,
    },
)


@given(
    st.lists(CONDITIONS | json_values, max_size=6),
    st.fixed_dictionaries({"type": st.sampled_from(list(ACTION_OF)), "status": st.just("True")}, optional=REST),
)
def test_no_conditions_whatever_make_reading_fail(conditions: list[Any], asked: dict[str, Any]) -> None:
    read = read_requests(node(*conditions, asked))
    assert asked["type"] in read
    for condition in read.values():
        found = read_ask(condition, NOON)
        assert isinstance(found, RequestRefusal) or found.policy in POLICIES


@given(st.sampled_from(list(ACTION_OF)), st.sampled_from(["WhenIdle", "Deadline", "Now", ""]), st.text(max_size=80))
def test_words_that_are_not_ours_never_change_what_is_asked_for(type_: str, reason: str, words: str) -> None:
    plain = words.replace("deadline=", "").replace("image=", "")
    message = f"{plain} deadline=+1h" if reason == "Deadline" else plain
    found = ask(type_, reason, message)
    assert isinstance(found, ParsedRequest)
    assert found.image is None
    assert found.deadline == (NOON + timedelta(hours=1) if reason == "Deadline" else None)


@given(st.datetimes(NOON.replace(tzinfo=None), (NOON + timedelta(days=80)).replace(tzinfo=None)))
def test_an_absolute_deadline_is_read_to_the_second(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC, microsecond=0)
    found = ask(REBOOT_REQUESTED, "Deadline", f"by deadline={rfc3339(moment)}.")
    assert isinstance(found, ParsedRequest)
    assert found.deadline == moment
