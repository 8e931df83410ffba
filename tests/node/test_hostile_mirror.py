"""Mirrors that lie or dawdle, and the agent that fetches from them beside running jobs."""

from __future__ import annotations

import hashlib
import io
import socket
from collections.abc import Iterator

import pytest

from provisioner.node.http.post import post
from provisioner.node.image import answer as source_answer
from provisioner.node.image import fetch as fetch_module
from provisioner.node.image.fetch import Unfinished, fetch_file, fetch_small
from provisioner.node.image.manifest import ImageError, ImageFile
from tests.hostile_mirror import (
    BEGUN,
    CHUNKED,
    FALSE,
    FALSE_PARTS,
    LEAST_RATE,
    LIES,
    ROOT,
    Behaviour,
    Mirrors,
    Request,
    drips,
    head,
    honest,
    pours,
    ranged,
    reply,
    sends,
    serving,
    truncating,
)

pytestmark = pytest.mark.slow

FILE = ImageFile("layer driver", "parts/sha256-9f", hashlib.sha256(ROOT).hexdigest(), len(ROOT))


@pytest.fixture
def _short_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_answer, "WINDOW_SECONDS", 1.5)


@pytest.fixture
def mirrors() -> Iterator[Mirrors]:
    """Both are honest until a test says otherwise."""
    with serving({(source, FILE.file_name): honest(ROOT) for source in ("cache", "boot host")}) as running:
        yield running


def fetch(mirrors: Mirrors, target: io.BytesIO, *, least_rate: int = LEAST_RATE) -> list[str]:
    sources = [f"{mirrors.url}/cache/images", f"{mirrors.url}/images"]
    faults, _ = fetch_file(sources, FILE, target, least_rate=least_rate, check=lambda: None, sleep=lambda seconds: None)
    return faults


@pytest.mark.usefixtures("_short_window")
@pytest.mark.parametrize("name", LIES)
def test_whatever_the_cache_gives_the_boot_host_gives_the_file(mirrors: Mirrors, name: str) -> None:
    lie, target = LIES[name], io.BytesIO()
    mirrors.behaviours["cache", FILE.file_name] = lie.behaviour
    faults = fetch(mirrors, target)
    assert target.getvalue() == ROOT
    assert lie.agent in faults[0]
    if lie.kept:
        assert mirrors.asked("boot host", FILE.file_name)[0] >= BEGUN, "what came is not fetched again"


def test_more_chunks_than_bytes_need_end_a_fetch(mirrors: Mirrors) -> None:
    mirrors.behaviours["cache", FILE.file_name] = pours(CHUNKED, b"1\r\nx\r\n" * 9999)
    (fault,) = fetch(mirrors, io.BytesIO())
    assert "without an end" in fault


def test_an_honest_cache_gives_all_and_the_boot_host_is_not_asked(mirrors: Mirrors) -> None:
    target = io.BytesIO()
    assert fetch(mirrors, target) == []
    assert target.getvalue() == ROOT
    assert {request.source for request in mirrors.requests} == {"cache"}


@pytest.mark.usefixtures("_short_window")
@pytest.mark.parametrize("liar", FALSE_PARTS)
def test_an_answer_to_a_range_that_is_none_of_it_does_not_get_into_the_file(mirrors: Mirrors, liar: str) -> None:
    cut_once: list[Request] = []

    def cut_first(connection: socket.socket, request: Request) -> None:
        cut_once.append(request)
        (truncating(ROOT, BEGUN) if len(cut_once) == 1 else honest(ROOT))(connection, request)

    mirrors.behaviours["cache", FILE.file_name] = cut_first
    mirrors.behaviours["boot host", FILE.file_name] = FALSE_PARTS[liar]
    target = io.BytesIO()
    fetch(mirrors, target)
    assert target.getvalue() == ROOT


def test_a_false_beginning_is_thrown_away_with_the_right_end_behind_it(mirrors: Mirrors) -> None:
    mirrors.behaviours["cache", FILE.file_name] = truncating(FALSE, BEGUN)
    target = io.BytesIO()
    fetch(mirrors, target)
    assert target.getvalue() == ROOT
    assert mirrors.asked("boot host", FILE.file_name) == [BEGUN, 0]


@pytest.mark.usefixtures("_short_window")
def test_where_every_source_is_slow_what_came_is_kept_for_the_next_try(mirrors: Mirrors) -> None:
    def slowly(connection: socket.socket, request: Request) -> None:
        (drips(head(len(ROOT)) + ROOT[:100_000], b"") if not request.start else sends(b""))(connection, request)

    mirrors.behaviours.update({(source, FILE.file_name): slowly for source in ("cache", "boot host")})
    target = io.BytesIO()
    with pytest.raises(Unfinished):
        fetch(mirrors, target)
    assert target.getvalue() == ROOT[:100_000]
    mirrors.behaviours["cache", FILE.file_name] = honest(ROOT)
    target.seek(0)
    fetch(mirrors, target)
    assert target.getvalue() == ROOT


@pytest.mark.usefixtures("_short_window")
def test_where_every_source_is_slow_but_not_mute_each_gives_a_part_in_turn(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_module, "TRIES", 1)

    def slowly(connection: socket.socket, request: Request) -> None:
        drips(ranged(ROOT, request.start)[:1_200_000], b"")(connection, request)

    mirrors.behaviours.update({(source, FILE.file_name): slowly for source in ("cache", "boot host")})
    target = io.BytesIO()
    assert len(fetch(mirrors, target)) > 1
    assert target.getvalue() == ROOT


@pytest.mark.parametrize("left", [FALSE, FALSE + b"more"])
def test_what_an_earlier_try_left_and_is_false_is_blamed_on_no_source(mirrors: Mirrors, left: bytes) -> None:
    target = io.BytesIO(left)
    assert fetch(mirrors, target) == []
    assert target.getvalue() == ROOT


def test_where_no_source_has_the_right_file_that_is_said(mirrors: Mirrors) -> None:
    mirrors.behaviours.update({(source, FILE.file_name): honest(FALSE) for source in ("cache", "boot host")})
    with pytest.raises(ImageError, match="is altered: sha256") as caught:
        fetch(mirrors, io.BytesIO())
    assert not isinstance(caught.value, Unfinished)
    assert len(mirrors.requests) == 2, "a source that alone gave a false file is not asked again"


def test_time_in_which_this_machine_does_not_read_makes_no_source_slow() -> None:
    """The agent has the processor only when nothing else wants it."""
    pace = source_answer.Pace(1 << 40, LEAST_RATE, lambda: 0.0)
    for _ in range(100):
        pace.add(0.01, 1)  # whatever passes in between
    with pytest.raises(source_answer.SourceTooSlow):
        pace.add(source_answer.WINDOW_SECONDS, 1)


def refuse_false(content: bytes) -> None:
    if content == b"false":
        raise ImageError("it is false")


SMALL_LIES: dict[str, tuple[Behaviour, str]] = {
    "drips": (drips(head(700)), "not whole after"),
    "has no end": (pours(head(1 << 40), b"x" * 65536), "more than 1000 bytes"),
    "is false": (sends(reply(b"false")), "it is false"),
    "redirects": (sends(reply(b"", status="301 Moved", headers="Location: /images/x/manifest\r\n")), "HTTP 301"),
}


@pytest.mark.usefixtures("_short_window")
@pytest.mark.parametrize("name", SMALL_LIES)
def test_whatever_the_cache_gives_for_a_manifest_the_boot_host_gives_it(mirrors: Mirrors, name: str) -> None:
    behaviour, told = SMALL_LIES[name]
    mirrors.behaviours["cache", "manifest"] = behaviour
    mirrors.behaviours["boot host", "manifest"] = sends(reply(b"true"))
    sources = [f"{mirrors.url}/cache/images/x", f"{mirrors.url}/images/x"]
    assert fetch_small(sources, "manifest", 1000, refuse_false) == b"true"
    with pytest.raises(ImageError, match=told):
        fetch_small(sources[:1], "manifest", 1000, refuse_false)


@pytest.mark.parametrize("answer", [drips(b"HTTP/1.1 200 OK\r\nX: "), drips(head(700))])
def test_a_report_is_not_held_by_an_answer_that_drips(mirrors: Mirrors, answer: Behaviour) -> None:
    mirrors.behaviours["boot host", "progress"] = answer
    with pytest.raises(TimeoutError):
        post(f"{mirrors.url}/v1/progress", b"{}", timeout_seconds=0.5)


def test_a_report_that_is_answered_at_once_is_done(mirrors: Mirrors) -> None:
    assert post(f"{mirrors.url}/v1/progress", b"{}", timeout_seconds=60.0).status == 200
