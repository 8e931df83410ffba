"""After a write that met another writer, a newer copy is waited for, and not for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api.machinery.errors import Conflict
from provisioner.cluster.own_writes import BEHIND_AT_MOST, OwnWrites
from provisioner.cluster.resources import NODES

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def node(version: int) -> dict[str, Any]:
    return {"metadata": {"name": "n1", "resourceVersion": str(version)}}


def meet_conflict(own: OwnWrites) -> None:
    with pytest.raises(Conflict), own.written_on("n1", NODES, node(5)):
        raise Conflict("the object has been modified")


def test_nothing_is_written_on_the_copy_that_met_a_conflict() -> None:
    own = OwnWrites(lambda: NOON)
    meet_conflict(own)
    assert not own.are_seen("n1", lambda *_: node(5))
    assert own.are_seen("n1", lambda *_: node(6))
    assert own.are_seen("n1", lambda *_: node(5)), "once it was seen, nothing is waited for"


def test_a_conflict_of_another_cause_holds_nobody_up_for_long() -> None:
    moment = [NOON]
    own = OwnWrites(lambda: moment[0])
    meet_conflict(own)
    moment[0] += BEHIND_AT_MOST + timedelta(milliseconds=1)
    assert own.are_seen("n1", lambda *_: node(5))


def test_a_write_of_ones_own_is_waited_for_also_after_a_conflict_before_it() -> None:
    own = OwnWrites(lambda: NOON)
    meet_conflict(own)
    own.note("n1", NODES, node(9))
    assert not own.are_seen("n1", lambda *_: node(6))
    assert own.are_seen("n1", lambda *_: node(9))


def test_a_copy_that_meets_conflicts_again_and_again_is_written_on_less_and_less_often() -> None:
    moment = [NOON]
    own = OwnWrites(lambda: moment[0])
    writes = 0
    for _ in range(3600):
        moment[0] += timedelta(seconds=1)
        if own.are_seen("n1", lambda *_: node(5)):
            meet_conflict(own)
            writes += 1
    assert 60 < writes < 70, "an hour of a cache that stands still: once a minute in the end"
    assert own.are_seen("n1", lambda *_: node(6))
    meet_conflict(own)
    moment[0] += BEHIND_AT_MOST + timedelta(milliseconds=1)
    assert own.are_seen("n1", lambda *_: node(5)), "a newer copy begins anew"
