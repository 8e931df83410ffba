"""What an index keeps of the objects under a key."""

from __future__ import annotations

from typing import Any

from provisioner.cluster.source import Index, Joined, Snapshot

Body = dict[str, Any]


class Counter:
    """Says the names of what it is given, and how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, objects: list[Body]) -> list[str]:
        self.asked += 1
        return [body["name"] for body in objects]


def index_of(*bodies: Body) -> Index:
    index = Index(lambda body: body["keys"])
    for body in bodies:
        index.put(body["name"], body)
    return index


def test_a_summary_is_made_once_for_each_change_of_what_it_is_of() -> None:
    names, index = Counter(), index_of({"name": "a", "keys": [1]}, {"name": "b", "keys": [1, 2]})
    assert index.summary(1, names) == index.summary(1, names) == ["a", "b"]
    assert names.asked == 1
    index.put("c", {"name": "c", "keys": [2]})
    assert index.summary(1, names) == ["a", "b"]
    assert names.asked == 1, "what changed is under another key"
    index.put("b", {"name": "b", "keys": [2]})
    assert index.summary(1, names) == ["a"]
    index.put("a", {"name": "a2", "keys": [1]})
    assert index.summary(1, names) == ["a2"]
    index.put("a", None)
    assert index.summary(1, names) == []


def test_each_summary_of_a_key_is_its_own() -> None:
    index = index_of({"name": "a", "keys": [1]})
    assert (index.summary(1, len), index.summary(1, tuple)) == (1, ({"name": "a", "keys": [1]},))


def test_a_summary_that_was_overtaken_by_a_change_is_not_kept() -> None:
    index = index_of({"name": "a", "keys": [1]})

    def slow(objects: list[Body]) -> int:
        if len(objects) == 1:
            index.put("b", {"name": "b", "keys": [1]})
        return len(objects)

    assert index.summary(1, slow) == 1
    assert index.summary(1, slow) == 2


def test_nothing_is_kept_of_a_key_without_objects() -> None:
    names, index = Counter(), index_of()
    for _ in range(2):
        assert index.summary("nobody", names) == []
    assert names.asked == 2
    assert not index._made


def test_joined_sources_are_read_and_told_of_as_one() -> None:
    one, other = Snapshot({"a": {"metadata": {"name": "a"}}}), Snapshot({"b": {"metadata": {"name": "b"}}})
    joined = Joined(one, other)
    told: list[str] = []
    joined.subscribe(lambda name, old, new: told.append(name))
    assert told == ["a", "b"]
    assert joined.has_synced
    assert [joined.get(name) for name in ("a", "b", "c")] == [one.get("a"), other.get("b"), None]
    assert len(joined.items()) == 2
    assert joined.index(lambda body: [body["metadata"]["name"]]).get("b") == [other.get("b")]
