"""Frames: made once, told to all, and told again to who comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from provisioner.web import broadcast as module
from provisioner.web.broadcast import BEHIND_FRAMES, RETRY, Broadcast

ROWS = {"rows": [["r01-u01", "failed", "!", "r01-u01: failed"]]}


@pytest.fixture(autouse=True)
def _beats_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 0.05)


def follow(
    told: Broadcast, after: str | None = None, topic: str | None = None, *, goes_on: bool = True
) -> Iterator[bytes]:
    stream = told.follow(after, topic, clock=Clock(), goes_on=lambda: goes_on)
    assert next(stream) == RETRY
    return stream


class Clock:
    """Each look is a minute later."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 60.0
        return self.now


def test_who_listens_to_the_fleet_gets_each_frame_with_its_id() -> None:
    told = Broadcast("e1")
    stream = follow(told)
    told.publish(ROWS, {"servers"})
    assert next(stream) == b'id: e1-1\nevent: fleet\ndata: {"rows":[["r01-u01","failed","!","r01-u01: failed"]]}\n\n'
    assert told.last_id == "e1-1"


def test_who_comes_back_gets_what_was_missed_and_nothing_twice() -> None:
    told = Broadcast("e1")
    for number in range(5):
        told.publish({"n": number}, ())
    missed = next(follow(told, after="e1-3"))
    assert b'{"n":3}' in missed
    assert b'{"n":4}' in missed
    assert b'{"n":2}' not in missed


@pytest.mark.parametrize("after", ["e0-3", "e1-999", "e1-x", "e1--1", "nonsense", "e1-" + "9" * 400])
def test_who_comes_with_an_id_of_another_process_or_of_none_loads_the_page_anew(after: str) -> None:
    told = Broadcast("e1")
    told.publish(ROWS, ())
    assert next(follow(told, after=after)) == b"id: e1-1\nevent: reset\ndata: {}\n\n"


def test_who_is_too_far_behind_loads_the_page_anew() -> None:
    told = Broadcast("e1")
    stream = follow(told)
    for number in range(BEHIND_FRAMES + 1):
        told.publish({"n": number}, ())
    assert b"event: reset" in next(stream)
    told.publish({"n": "next"}, ())
    assert b'{"n":"next"}' in next(stream)


def test_frames_are_kept_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_BYTES", 1000)
    told = Broadcast("e1")
    for _ in range(10):
        told.publish({"x": "y" * 400}, ())
    assert told._bytes <= 1000
    assert b"event: reset" in next(follow(told, after="e1-1"))
    assert [frame.number for frame in told._frames] == [9, 10]
    assert b"event: reset" in next(follow(told, after="e1-7"))
    for number in (8, 9):
        assert b"event: fleet" in next(follow(told, after=f"e1-{number}")), "nothing after it was lost"
    listens = follow(told)
    for _ in range(5):
        told.publish({"x": "y" * 400}, ())
    assert b"event: reset" in next(listens), "of five only two are kept"


def test_who_listens_to_a_topic_is_told_that_it_changed_and_nothing_else() -> None:
    told = Broadcast("e1")
    stream = follow(told, topic="servers/r01-u01")
    told.publish(ROWS, {"servers/r01-u02"})
    assert next(stream) == module.BEAT
    told.publish(ROWS, {"servers/r01-u01", "servers"})
    assert next(stream) == b"id: e1-2\nevent: changed\ndata: {}\n\n"


def test_a_line_break_in_what_is_told_ends_no_frame() -> None:
    told = Broadcast("e1")
    stream = follow(told)
    told.publish({"label": "a\n\nevent: evil\ndata: b\r\u2028"}, ())
    assert next(stream).count(b"\n\n") == 1


def test_silence_is_broken_by_a_comment_and_ended_where_the_viewer_may_not_look_any_more() -> None:
    assert list(islice(follow(Broadcast("e1")), 3)) == [module.BEAT] * 3
    assert list(follow(Broadcast("e1"), goes_on=False)) == []


def test_all_streams_end_when_the_service_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT_SECONDS", 60.0)
    told = Broadcast("e1")
    ended = threading.Event()

    def listen() -> None:
        for _ in told.follow(None, None, clock=lambda: 0.0, goes_on=lambda: True):
            pass
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    told.close()
    assert ended.wait(30)
