"""Of the Events about an object the newest are read, each with a bound, and it is said how many are left out."""

from __future__ import annotations

import json
from typing import Any

from provisioner.cluster.recent_events import CUT_OFF, MOST, read_events
from tests.cluster.fake_cluster import FakeCluster


def event(number: int, message: str, **more: Any) -> dict[str, Any]:
    moment = f"2026-03-04T{number // 60:02d}:{number % 60:02d}:00Z"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"e-{number:04d}", "namespace": "default"},
        "involvedObject": {"kind": "Server", "name": "r01-u01"},
        "lastTimestamp": moment,
        "message": message,
        "type": "Normal",
        "reason": "A",
        **more,
    }


def cluster_with(*events: dict[str, Any]) -> FakeCluster:
    from provisioner.cluster.resources import EVENTS

    cluster = FakeCluster()
    for each in events:
        cluster.create(EVENTS, each)
    return cluster


def test_a_bomb_of_events_is_neither_held_nor_shown() -> None:
    bomb = [
        event(number, "x" * 200_000, action="y" * 200_000, source={"component": "z" * 9000}) for number in range(60)
    ]
    read = read_events(cluster_with(*bomb), "r01-u01")  # type: ignore[arg-type]
    assert len(json.dumps(read.events)) < 60 * 3000
    assert all(each["message"].endswith(CUT_OFF) for each in read.events)
    assert (len(read.events), read.left_out) == (60, 0)


def test_the_newest_are_kept_and_the_others_counted() -> None:
    many = [event(number, str(number)) for number in range(MOST * 3)]
    read = read_events(cluster_with(*reversed(many)), "r01-u01")  # type: ignore[arg-type]
    assert [each["message"] for each in read.events] == [str(number) for number in range(MOST * 2, MOST * 3)]
    assert read.left_out == MOST * 2


def test_a_few_honest_events_are_shown_as_they_are() -> None:
    said = event(1, "boot was ordered", series={"count": 3, "lastObservedTime": "2026-03-04T05:00:00Z"})
    (read,) = read_events(cluster_with(said), "r01-u01").events  # type: ignore[arg-type]
    assert (read["message"], read["series"]["count"], read["reason"]) == ("boot was ordered", 3, "A")
