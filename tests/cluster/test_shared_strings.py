"""What the objects of a copy have in common."""

from __future__ import annotations

import json

from provisioner.cluster.informer import SHARED_CHARACTERS, SharedStrings

OBJECT = {
    "metadata": {"name": "r01-u01", "labels": {"provisioner.dev/pool": "gpu"}},
    "spec": {"count": 3, "share": 0.5, "on": True, "off": None, "taints": [{"key": "a"}, [], {}]},
    "words": "x" * (SHARED_CHARACTERS + 1),
}


def test_a_copy_says_the_same_as_what_came() -> None:
    assert SharedStrings().share(OBJECT) == OBJECT
    assert json.dumps(SharedStrings().share(OBJECT)) == json.dumps(OBJECT)


def test_two_copies_have_their_keys_and_short_strings_in_common_and_no_more() -> None:
    strings = SharedStrings()
    one, other = (strings.share(json.loads(json.dumps(OBJECT))) for _ in range(2))
    assert one["metadata"]["name"] is other["metadata"]["name"]
    assert one["words"] is not other["words"]
    for mine, theirs in zip(one["metadata"]["labels"], other["metadata"]["labels"], strict=True):
        assert mine is theirs
    one["metadata"]["labels"].clear()
    assert other == OBJECT, "what can be changed is not shared"


def test_a_string_that_is_met_again_and_again_stays_while_those_that_are_not_are_forgotten() -> None:
    strings = SharedStrings(remembered=4)
    often, once = strings.share(json.loads('["Passed", "b1946ac9"]'))
    for number in range(40):
        assert strings.share(json.loads(f'["Passed", "a time {number}"]'))[0] is often
    assert strings.share(json.loads('["b1946ac9"]'))[0] is not once
