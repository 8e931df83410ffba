"""Label selectors, compared with kubectl's grammar; the real API server judges the same ones in test_pods_for_real."""

from __future__ import annotations

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.jobs.selectors import parse_selector, read_selector

LABELS = {"app": "training", "tier": "a", "size": "8", "empty": "", "example.com/team": "blue"}

MATCHING = [
    "app=training",
    "app==training",
    " app = training , tier=a ",
    "app!=serving",
    "absent!=anything",
    "app in (serving,training)",
    "app in ( serving , training ),tier",
    "tier notin (b, c)",
    "absent notin (b)",
    "app",
    "!absent",
    "! absent",
    "empty=",
    "empty in (a,)",
    "empty in ()",
    "empty=,app",
    "size>7",
    "size<9",
    "example.com/team=blue",
]
NOT_MATCHING = [
    "app=serving",
    "app!=training",
    "app=training,tier=b",
    "absent",
    "!app",
    "app in (serving)",
    "app notin (training)",
    "absent in (a)",
    "app=",
    "size>8",
    "absent>1",
    "tier>1",
]
BAD = [
    "",
    " ",
    "app=training,",
    ",app",
    "a in (",
    "a in b",
    "a in (b c)",
    "=b",
    "a=b=c",
    "a b",
    "!a=b",
    "a>b",
    "-a=b",
    "a=b!",
    "a/b/c=d",
    "a=(b)",
    f"a={'x' * 64}",
]


@pytest.mark.parametrize("text", MATCHING)
def test_a_selector_that_matches(text: str) -> None:
    assert parse_selector(text).matches(LABELS)


@pytest.mark.parametrize("text", NOT_MATCHING)
def test_a_selector_that_does_not_match(text: str) -> None:
    assert not parse_selector(text).matches(LABELS)


@pytest.mark.parametrize("text", BAD)
def test_a_selector_that_nobody_can_read_is_refused_with_its_text_and_a_remedy(text: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_selector(text)
    assert repr(text) in str(caught.value)
    assert "write it as kubectl -l takes it" in str(caught.value)


def test_a_selector_of_an_object_is_the_and_of_labels_and_expressions() -> None:
    selector = read_selector(
        {
            "matchLabels": {"app": "training"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["b"]}],
        }
    )
    assert selector is not None
    assert selector.matches(LABELS)
    assert not selector.matches({**LABELS, "tier": "b"})


def test_an_empty_selector_of_an_object_matches_everything_and_an_absent_one_is_none() -> None:
    everything = read_selector({})
    assert everything is not None
    assert everything.matches({})
    assert read_selector(None) is None
