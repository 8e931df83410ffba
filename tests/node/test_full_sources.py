"""Sources that send to as many as they can, and say so: the agent waits, and nobody is at fault."""

from __future__ import annotations

import hashlib
import io
import itertools
import socket
from collections.abc import Callable, Iterator

import pytest

from provisioner.node.image.answer import DEFAULT_RETRY_SECONDS, read_retry_after
from provisioner.node.image.fetch import MOST_WAITED_SECONDS, TRIES, Unfinished, fetch_file
from provisioner.node.image.manifest import ImageFile
from tests.hostile_mirror import (
    BEGUN,
    LEAST_RATE,
    ROOT,
    Behaviour,
    Mirrors,
    Request,
    honest,
    reply,
    sends,
    serving,
    truncating,
)

FILE = ImageFile("layer driver", "parts/sha256-9f", hashlib.sha256(ROOT).hexdigest(), len(ROOT))
FULL = sends(reply(b"", status="503 Service Temporarily Unavailable", headers="Retry-After: 8\r\n"))
GONE = sends(reply(b"", status="404 Not Found"))


def after(times: int, first: Behaviour, then: Behaviour) -> Behaviour:
    asked: list[Request] = []

    def answer(connection: socket.socket, request: Request) -> None:
        asked.append(request)
        (first if len(asked) <= times else then)(connection, request)

    return answer


@pytest.fixture
def mirrors() -> Iterator[Mirrors]:
    """Both are full until a test says otherwise."""
    with serving({(source, FILE.file_name): FULL for source in ("cache", "boot host")}) as running:
        yield running


def fetch(
    mirrors: Mirrors, target: io.BytesIO, clock: Callable[[], float] = lambda: 0.0
) -> tuple[list[str], list[float]]:
    """What was wrong with sources, and the pauses; each is the longest that it may be."""
    pauses: list[float] = []
    sources = [f"{mirrors.url}/cache/images", f"{mirrors.url}/images"]
    faults, _ = fetch_file(
        sources,
        FILE,
        target,
        least_rate=LEAST_RATE,
        check=lambda: None,
        sleep=lambda seconds: pauses.append(seconds),
        spread=lambda least, most: most,
        clock=clock,
    )
    return faults, pauses


def test_where_the_cache_is_full_the_boot_host_is_asked_at_once_and_nobody_is_at_fault(mirrors: Mirrors) -> None:
    mirrors.behaviours["boot host", FILE.file_name] = honest(ROOT)
    target = io.BytesIO()
    assert fetch(mirrors, target) == ([], [])
    assert target.getvalue() == ROOT


def test_where_all_are_full_they_are_asked_again_as_often_as_it_takes(mirrors: Mirrors) -> None:
    times = 3 * TRIES
    mirrors.behaviours["boot host", FILE.file_name] = after(times, FULL, honest(ROOT))
    target = io.BytesIO()
    assert fetch(mirrors, target) == ([], [12.0] * times), "each time as long as the source said, and half more"
    assert target.getvalue() == ROOT


def test_a_source_that_fails_beside_one_that_is_full_ends_no_fetch(mirrors: Mirrors) -> None:
    times = 2 * TRIES
    mirrors.behaviours["cache", FILE.file_name] = GONE
    mirrors.behaviours["boot host", FILE.file_name] = after(times, FULL, honest(ROOT))
    target = io.BytesIO()
    faults, pauses = fetch(mirrors, target)
    assert (set(faults), pauses) == ({f"{mirrors.url}/cache/images/{FILE.path}: HTTP 404"}, [12.0] * times)
    assert target.getvalue() == ROOT


def test_what_came_before_a_source_was_full_is_not_fetched_again(mirrors: Mirrors) -> None:
    mirrors.behaviours["cache", FILE.file_name] = after(1, truncating(ROOT, BEGUN), FULL)
    mirrors.behaviours["boot host", FILE.file_name] = after(3, FULL, honest(ROOT))
    target = io.BytesIO()
    fetch(mirrors, target)
    assert target.getvalue() == ROOT
    assert set(mirrors.asked("boot host", FILE.file_name)) == {BEGUN}


def test_a_source_that_is_full_for_ever_is_given_up_after_an_hour_and_what_came_is_kept(mirrors: Mirrors) -> None:
    target = io.BytesIO()
    with pytest.raises(Unfinished, match=r"has been full \(HTTP 503\) for 60 minutes"):
        fetch(mirrors, target)
    assert len(mirrors.requests) <= 2 * (MOST_WAITED_SECONDS / 12 + 2)


def test_what_another_source_stalls_while_one_is_full_counts_as_waiting(mirrors: Mirrors) -> None:
    mirrors.behaviours["cache", FILE.file_name] = GONE
    minutes = itertools.count(step=60)
    with pytest.raises(Unfinished, match=r"has been full \(HTTP 503\) for"):
        fetch(mirrors, io.BytesIO(), lambda: float(next(minutes)))
    assert len(mirrors.requests) <= 2 * (MOST_WAITED_SECONDS / 60 + 2)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("8", 8.0), ("0", 1.0), ("99999", 60.0), ("9" * 99, DEFAULT_RETRY_SECONDS), (None, DEFAULT_RETRY_SECONDS),
     ("Fri, 31 Dec 1999 23:59:59 GMT", DEFAULT_RETRY_SECONDS), ("-5", DEFAULT_RETRY_SECONDS)],
)  # fmt: skip
def test_a_source_says_when_to_ask_again_and_not_for_how_long_a_machine_waits(said: str | None, seconds: float) -> None:
    assert read_retry_after(said) == seconds
