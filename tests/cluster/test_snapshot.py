"""Objects that were read once, as a source."""

from __future__ import annotations

from typing import Any

from provisioner.cluster.source import Snapshot


def body(name: str, pool: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"pool": pool}}


def test_a_snapshot_is_read_like_a_cache_that_never_changes() -> None:
    objects = {name: body(name, pool) for name, pool in (("a", "x"), ("b", "y"), ("c", "x"))}
    source = Snapshot(objects)
    assert source.has_synced
    assert source.get("b") == objects["b"]
    assert source.get("d") is None
    assert source.items() == list(objects.values())
    by_pool = source.index(lambda each: [each["spec"]["pool"]])
    assert by_pool.get("x") == [objects["a"], objects["c"]]
    assert by_pool.get("z") == []


def test_who_subscribes_is_told_of_what_is_there() -> None:
    told: list[tuple[str, Any, Any]] = []
    Snapshot({"a": body("a", "x")}).subscribe(lambda *each: told.append(each))
    assert told == [("a", None, body("a", "x"))]
