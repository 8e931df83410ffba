"""A program has an end to its time and to its output, whatever it does; with real processes."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from provisioner.network.agent.card.tools import MOST_BYTES, Ran, ToolFailed, Tools

pytestmark = pytest.mark.programs

PATIENCE_SECONDS = 180.0
PATH = f"{Path(sys.executable).parent}:/usr/bin:/bin"


def shell(script: str, patience_seconds: float = PATIENCE_SECONDS) -> Ran:
    return Tools(PATH, patience_seconds).run(("sh", "-c", script))


def test_output_and_exit_status_are_those_of_the_program() -> None:
    ran = shell("echo one; echo two >&2; exit 3")
    assert (ran.status, sorted(ran.output.split())) == (3, ["one", "two"])


def test_it_is_started_with_no_input_and_with_nothing_of_the_agents_environment() -> None:
    os.environ["OF_THE_AGENT"] = "yes"
    try:
        ran = shell('cat; echo "[$OF_THE_AGENT]" "$LC_ALL"')
    finally:
        del os.environ["OF_THE_AGENT"]
    assert ran.output.split() == ["[]", "C"]


def test_what_hangs_is_killed_in_time_with_all_that_it_has_started() -> None:
    began = time.monotonic()
    with pytest.raises(ToolFailed) as failure:
        shell("sleep 600 & echo $!; sleep 600", patience_seconds=0.5)
    assert time.monotonic() - began < PATIENCE_SECONDS
    assert "did not end within 0.5 s and was killed" in str(failure.value)
    assert "power-cycle" in str(failure.value)


def test_one_that_outlives_its_end_in_the_kernel_is_waited_for_before_anything_else_is_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each attempt would leave one more behind. Here it is the signal that does not come."""
    killed: list[int] = []
    tools = Tools(PATH, 0.5)
    monkeypatch.setattr(os, "killpg", lambda group, _: killed.append(group))
    with pytest.raises(ToolFailed, match="was killed"):
        tools.run(("sleep", "30"))
    with pytest.raises(ToolFailed) as failure:
        tools.run(("true",))
    assert f"`true` was not run: a command of before, process {killed[0]}, was killed and has not" in str(failure.value)
    os.kill(killed[0], signal.SIGKILL)
    _gone(killed[0])
    monkeypatch.setattr(tools, "_patience_seconds", PATIENCE_SECONDS)
    assert tools.run(("true",)).status == 0


def test_a_child_that_keeps_the_output_open_holds_nobody_up(tmp_path: Path) -> None:
    began, pid = time.monotonic(), tmp_path / "pid"
    for patience_seconds in (0.5, 5.0, 50.0):  # until it has begun to hold it open
        with pytest.raises(ToolFailed, match="did not end"):
            shell(f"sleep 600 & echo $! > {pid}; exit 0", patience_seconds)
        if pid.exists() and pid.read_text():
            break
    assert time.monotonic() - began < PATIENCE_SECONDS
    _gone(int(pid.read_text()))


def test_what_prints_without_end_is_killed_at_its_bound() -> None:
    with pytest.raises(ToolFailed, match=f"printed more than {MOST_BYTES} bytes"):
        shell("while :; do echo again and again and again and again; done")


def test_a_program_that_is_not_there_is_named_with_what_to_do() -> None:
    with pytest.raises(ToolFailed) as failure:
        Tools(PATH).run(("mstnothing", "-d", "0000:03:00.0", "q"))
    assert "the program mstnothing is not installed: boot the DPU with an image that has mstflint" in str(failure.value)


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    (tmp_path / "mstconfig").write_text("no program\n")
    with pytest.raises(ToolFailed, match="could not be started"):
        Tools(str(tmp_path)).run(("mstconfig",))


def test_what_it_printed_is_told_as_one_short_line() -> None:
    words = Ran(("x",), 1, "first\x1b[31m\n\n" + "long " * 10_000 + "-E- last\tof it\0\n").words()
    assert len(words) <= 400
    assert words.endswith("long -E- last of it")
    assert words.isprintable()
    assert Ran(("x",), 1, "\n").words() == "nothing"


def _gone(pid: int) -> None:
    """A killed orphan is reaped by whoever is its parent then: a zombie is gone, too."""
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} is still there")
