"""Lines of nginx's log, as counts; and what nobody may make of them."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from provisioner.boot.metrics import log_tail
from provisioner.boot.metrics.log_tail import LINE_BYTES, QUIET_SECONDS, LogTail
from provisioner.boot.metrics.requests import CLASSES, CODES, PartClasses, RequestsMeter
from tests.boot.fake_source import FakeSource
from tests.boot.metrics.exposition import check_by_promtool, risen, samples
from tests.boot.objects import layered_image

KERNEL = "parts/sha256-" + "6b" * 32
LAYER = "parts/sha256-" + "62" * 32
SERIES = len(CLASSES) * (len(CODES) + 1 + 16)
"""Of one meter: the codes, the bytes, and 14 buckets, a sum and a count of each class."""


class Metered:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.images = FakeSource()
        self.classes = PartClasses(self.images)
        self.meter = RequestsMeter(self.registry, self.classes.get)

    def count(self, line: str) -> bool:
        return self.meter.count(line.encode())


@pytest.mark.parametrize(
    ("line", "name", "code", "sent"),
    [
        ("script 200 512 0.000 -", "script", "2xx", 512), ("other 404 0 0.000 -", "other", "4xx", 0),
        ("progress 429 17 0.000 -", "progress", "429", 17), ("manifest 304 0 0.001 -", "manifest", "3xx", 0),
        ("layer 499 7 12.5 -", "layer", "499", 7), ("join 502 1 30.001 -", "join", "5xx", 1),
        (f"part 206 1048576 0.031 {LAYER}", "layer", "2xx", 1048576), (f"part 503 0 0.0 {KERNEL}", "kernel", "503", 0),
        ("part 404 0 0.0 parts/sha256-" + "00" * 32, "part", "4xx", 0),
    ],
)  # fmt: skip
def test_a_line_is_counted_by_what_was_asked_and_how_it_was_answered(
    line: str, name: str, code: str, sent: int
) -> None:
    metered = Metered()
    metered.images.put(layered_image("base"))
    for watcher in metered.images.watchers:
        watcher("x", None, metered.images.items()[0])
    before = samples(metered.registry)
    assert metered.count(line)
    rose = risen(before, samples(metered.registry))
    assert rose.pop(f'provisioner_http_requests_total{{class="{name}",code="{code}"}}') == 1
    assert rose.pop(f'provisioner_http_sent_bytes_total{{class="{name}"}}', 0) == sent
    assert not rose


def test_parts_of_an_image_that_is_gone_are_parts_again() -> None:
    metered = Metered()
    metered.images.put(layered_image("base"))
    assert metered.classes.get(LAYER) == "layer"
    metered.images.remove("gpu-node-abababababab")
    assert metered.classes.get(LAYER) == "part"


@pytest.mark.parametrize(
    "line",
    ["", " ", "script", "script 200 1 0.0", "script 200 1 0.0 - -", "evil 200 1 0.0 -", "script abc 1 0.0 -",
     "script 200 -1 0.0 -", "script 200 1 nan -", "script 200 1 inf -", "script 200 1 -1 -", "script 999 1 0.0 -",
     "script 20 1 0.0 -", "script 200 x 0.0 -", "script  200 1 0.0 -", "script 2٠٠ 1 0.0 -", 'script"} 200 1 0.0 -'],
)  # fmt: skip
def test_what_is_no_line_of_ours_is_not_counted(line: str) -> None:
    metered = Metered()
    before = samples(metered.registry)
    assert not metered.count(line)
    assert risen(before, samples(metered.registry)) == {}


@given(st.binary(max_size=200))
def test_whatever_is_in_the_log_there_are_no_more_series(line: bytes) -> None:
    metered = Metered()
    metered.meter.count(line)
    assert len(samples(metered.registry)) == SERIES


@pytest.mark.programs
def test_promtool_has_nothing_to_say() -> None:
    metered = Metered()
    assert metered.count("script 200 512 0.000 -")
    check_by_promtool(metered.registry)


class Tailed:
    """A log, and what was taken from it."""

    def __init__(self, path: Path) -> None:
        self.path, self.lines, self.now = path, list[bytes](), 0.0
        self.tail = LogTail(path, self.take, clock=lambda: self.now)

    def take(self, line: bytes) -> bool:
        self.lines.append(line)
        return not line.startswith(b"bad")

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)

    def read(self) -> list[bytes]:
        while self.tail.turn():
            pass
        taken, self.lines = self.lines, []
        return taken


@pytest.fixture
def tailed(tmp_path: Path) -> Tailed:
    return Tailed(tmp_path / "requests.log")


def test_lines_are_taken_whole_whenever_they_come(tailed: Tailed) -> None:
    assert tailed.read() == [], "there is no log yet"
    tailed.write("one\ntw")
    assert tailed.read() == [b"one"]
    tailed.write("o\nthree\n")
    assert tailed.read() == [b"two", b"three"]
    assert tailed.read() == []


def test_what_was_there_before_the_start_was_counted_by_who_ran_then(tmp_path: Path) -> None:
    (tmp_path / "requests.log").write_text("old\n")
    tailed = Tailed(tmp_path / "requests.log")
    tailed.write("new\n")
    assert tailed.read() == [b"new"]


def test_a_renamed_log_is_read_until_it_is_quiet_beside_the_new_one(tailed: Tailed) -> None:
    tailed.write("one\n")
    tailed.read()
    renamed = tailed.path.rename(tailed.path.with_name("requests.log.1"))
    assert tailed.read() == []
    tailed.write("three\n")
    assert tailed.read() == [b"three"]
    with renamed.open("a") as file:
        file.write("two\nhal")
    assert tailed.read() == [b"two"]
    tailed.now += QUIET_SECONDS
    tailed.write("four\n")
    assert tailed.read() == [b"four"]
    assert tailed.tail.lost_bytes == len("hal"), "it is known that half a line never became one"


def test_a_log_that_was_cut_is_read_from_its_beginning(tailed: Tailed) -> None:
    tailed.write("one and more\n")
    tailed.read()
    tailed.path.write_text("two\n")
    assert tailed.read() == [b"two"]


def test_a_line_without_an_end_costs_no_memory_and_the_next_is_read(
    tailed: Tailed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_tail, "TURN_BYTES", 1000)
    tailed.write("x" * (3 * LINE_BYTES))
    assert tailed.read() == []
    tailed.write("x\nnext\nbad one\n")
    assert tailed.read() == [b"next", b"bad one"]
    assert (tailed.tail.lost_bytes, tailed.tail.unreadable_lines) == (3 * LINE_BYTES + 1, 2)


def test_nothing_is_lost_or_counted_twice_over_many_renames(tailed: Tailed) -> None:
    chance, written, taken = random.Random(7), list[bytes](), list[bytes]()
    for number in range(2000):
        line = f"line {number} {'x' * chance.randrange(80)}"
        written.append(line.encode())
        tailed.write(line + "\n")
        tailed.now += chance.random()
        if chance.random() < 0.05:
            taken += tailed.read()
        if tailed.path.stat().st_size > 1000 and chance.random() < 0.5:
            taken += tailed.read()
            tailed.path.rename(tailed.path.with_name("requests.log.1"))
    assert sorted(taken + tailed.read()) == sorted(written)
    assert tailed.tail.lost_bytes == 0


def test_what_was_written_before_the_end_is_counted_before_the_end(tailed: Tailed) -> None:
    stop = threading.Event()
    tailed.write("one\n")
    stop.set()
    tailed.tail.run(stop)
    assert tailed.lines == [b"one"]
