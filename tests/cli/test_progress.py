"""What a person sees of long work, and what a program that reads the output does not."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator

import pytest

from provisioner.cli import progress
from provisioner.cli.progress import Progress, render


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(progress, "_TERMINAL_SECONDS", 0.01)
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.01)
    return


def work(stream: io.StringIO) -> None:
    with Progress(stream) as shown:
        shown.begin("registering", 200)
        for _ in range(50):
            shown.advance()
        deadline = time.monotonic() + 180
        while "50 of 200" not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)


def test_pieces_are_shown_with_rate_and_what_is_left() -> None:
    assert render("registering", 2_500, 10_000, 10.0, bar=False) == "registering 2,500 of 10,000, 250/s, 30 s left"
    assert render("registering", 50, 100, 10.0, bar=True).startswith("registering [############------------] 50 of 100")
    assert render("registering", 0, 100, 0.0, bar=False) == "registering 0 of 100, 0/s"
    assert render("building: base", 0, None, 12.4, bar=True) == "building: base … 12 s"


@pytest.mark.usefixtures("quick")
def test_a_terminal_has_one_line_that_is_redrawn_and_gone_at_the_end() -> None:
    terminal = Terminal()
    work(terminal)
    assert "\n" not in terminal.getvalue()
    assert "registering [######------------------] 50 of 200" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.usefixtures("quick")
def test_elsewhere_there_are_plain_lines() -> None:
    log = io.StringIO()
    work(log)
    assert "\x1b" not in log.getvalue()
    assert "\r" not in log.getvalue()
    assert any(line.startswith("registering 50 of 200") for line in log.getvalue().splitlines())


def test_short_work_prints_nothing_elsewhere() -> None:
    log = io.StringIO()
    with Progress(log) as shown:
        shown.begin("registering", 2)
        shown.advance(2)
    assert log.getvalue() == ""


def test_a_line_that_stays_goes_to_stdout_and_the_progress_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    with Progress(terminal) as shown:
        shown.begin("building")
        shown.show()
        shown.line("base      built")
    assert capsys.readouterr().out == "base      built\n"
    assert terminal.getvalue().index("building") < terminal.getvalue().rindex("\r\x1b[K")
