"""Facts come from the machine: whatever stands there, the answer is facts or words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.codec import to_json
from provisioner.health.checks.facts import MAX_BYTES, read_facts
from tests.health.objects import BOOT, OTHER_BOOT, good_facts, node

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


def test_facts_of_the_running_boot_are_read() -> None:
    facts, finding = read_facts(node())
    assert facts == good_facts()
    assert finding.ok


def test_the_boot_id_is_compared_without_regard_to_case() -> None:
    facts, _ = read_facts(node(good_facts(boot_id=BOOT.upper())))
    assert facts is not None


@pytest.mark.parametrize("text", ["", json.dumps(to_json(good_facts(boot_id=OTHER_BOOT)))])
def test_facts_that_are_absent_or_of_another_boot_are_waited_for(text: str) -> None:
    facts, finding = read_facts(node(text))
    assert facts is None
    assert (finding.ok, finding.reason) == (None, "WaitsForFacts")
    assert BOOT in finding.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "it is no JSON"),
        ('{"format": 1, "product": "\\ud800"}', "it is no JSON"),
        ("[]", "expected: an object"),
        ("null", "expected: an object"),
        ('{"format": 2}', "format 1"),
        ('{"format": 1}', "lacks bootID"),
        (json.dumps(to_json(good_facts()) | {"cpus": "many"}), "cpus is 'many'"),
        (json.dumps(to_json(good_facts()) | {"nics": [1]}), "nics[0]"),
        ("[" * 50_000, "it is no JSON"),
        ('{"format": ' + "9" * 5000 + "}", "it is no JSON"),
        ("x" * (MAX_BYTES + 1), "at most 65536"),
    ],
)
def test_what_cannot_be_used_is_told_in_words(text: str, words: str) -> None:
    facts, finding = read_facts(node(text))
    assert facts is None
    assert (finding.ok, finding.reason) == (False, "Malformed")
    assert words in finding.message
    assert "journalctl -u provisioner-node" in finding.message


@given(JSON, st.sampled_from(sorted(to_json(good_facts()))))
def test_no_value_in_any_field_raises(value: object, field: str) -> None:
    facts, finding = read_facts(node(json.dumps(to_json(good_facts()) | {field: value})))
    assert (facts is None) == (finding.ok is not True)


@given(st.text(max_size=200))
def test_no_text_raises(text: str) -> None:
    facts, finding = read_facts(node(text or " "))
    assert facts is None
    assert finding.message.isprintable()
