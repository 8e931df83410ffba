"""What is kept of the lines of a watch."""

from __future__ import annotations

import json

from provisioner.cluster.changes import SHARED_CHARACTERS, share_strings

OBJECT = {
    "metadata": {"name": "r01-u01", "labels": {"provisioner.dev/pool": "gpu"}},
    "spec": {"count": 3, "share": 0.5, "on": True, "off": None, "taints": [{"key": "a"}, [], {}]},
    "words": "x" * (SHARED_CHARACTERS + 1),
}


def test_a_copy_says_the_same_as_what_came() -> None:
    assert share_strings(OBJECT) == OBJECT
    assert json.dumps(share_strings(OBJECT)) == json.dumps(OBJECT)


def test_two_copies_have_their_keys_and_short_strings_in_common_and_no_more() -> None:
    one, other = (share_strings(json.loads(json.dumps(OBJECT))) for _ in range(2))
    assert one["metadata"]["name"] is other["metadata"]["name"]
    assert one["words"] is not other["words"]
    for mine, theirs in zip(one["metadata"]["labels"], other["metadata"]["labels"], strict=True):
        assert mine is theirs
    one["metadata"]["labels"].clear()
    assert other == OBJECT, "what can be changed is not shared"
