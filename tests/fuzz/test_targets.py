"""Bytes of strangers are taken or refused, and nothing else: a bounded part of what `make fuzz` does, and every case
that it ever found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from tests.fuzz import play as playing
from tests.fuzz.play import CASES, Crash, attempts, play
from tests.fuzz.targets import TARGETS, Target

pytestmark = pytest.mark.slow

NAMES = [target.name for target in TARGETS]
MUTATED = 250


@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
def test_good_input_is_there_and_is_taken(target: Target) -> None:
    assert target.seeds()
    assert all(target.attempt(data) for data in target.seeds())


@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
def test_good_input_made_worse_is_taken_or_refused(target: Target) -> None:
    for data in attempts(target, 0, MUTATED):
        crash = play(target, data)
        assert crash is None, f"{crash.words}\n{crash.data!r}"


@pytest.mark.parametrize("target", TARGETS, ids=NAMES)
@settings(max_examples=40)
@given(data=st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_noise_is_taken_or_refused(target: Target, data: bytes) -> None:
    crash = play(target, data)
    assert crash is None, f"{crash.words}\n{crash.data!r}"


def crashes_again(cases: Path, targets: Sequence[Target]) -> list[str]:
    """The words of each case that was kept and still crashes. Raises: KeyError if its target is gone."""
    of_name = {target.name: target for target in targets}
    kept = [path for path in sorted(cases.glob("*/*")) if path.is_file()]
    crashes = [play(of_name[path.parent.name], path.read_bytes()) for path in kept]
    return [crash.words for crash in crashes if crash is not None]


def test_what_was_found_once_does_not_come_back() -> None:
    assert crashes_again(CASES, TARGETS) == []


def _breaks(data: bytes) -> None:
    if b"%" in data:
        raise KeyError("nobody thought of that")
    if b"#" in data:
        raise Refused("no", hint="do not")


BROKEN = Target("broken", _breaks, lambda: [b"a good input"], (Refused,))


def test_a_reader_that_raises_something_else_is_found_and_its_input_is_kept(tmp_path: Path) -> None:
    crashes = [crash for data in attempts(BROKEN, 1, 5000) if (crash := play(BROKEN, data)) is not None]
    assert crashes
    assert all(b"%" in crash.data and "nobody thought of that" in crash.words for crash in crashes)
    assert crashes[0].keep(tmp_path).read_bytes() == crashes[0].data
    (words,) = crashes_again(tmp_path, [BROKEN])
    assert "nobody thought of that" in words
    assert crashes_again(tmp_path, [replace(BROKEN, read=lambda _: None)]) == []


def test_what_is_refused_as_it_should_be_is_no_crash() -> None:
    assert play(BROKEN, b"#") is None


def test_a_reader_that_does_not_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "LONGEST_SECONDS", 1)

    def loops(_: bytes) -> None:
        try:
            while True:
                pass
        except Exception as error:
            raise Refused("read as nonsense", hint="do not") from error

    crash = play(Target("loops", loops, lambda: [b"x"], (Refused,)), b"x")
    assert isinstance(crash, Crash)
    assert "not done after 1 s" in crash.words


def test_the_same_seed_makes_the_same_inputs() -> None:
    assert list(attempts(BROKEN, 7, 50)) == list(attempts(BROKEN, 7, 50)) != list(attempts(BROKEN, 8, 50))
