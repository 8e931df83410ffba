"""What an emulated machine says when its timer is gone, and what is done about it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from lab.machine.lost_timer import ConsoleWatch, timer_was_lost
from tests.emulator import EmulatorFault, Heard, emulator

LOST = (
    "[   26.110237] rcu: rcu_preempt kthread timer wakeup didn't happen for 5250 jiffies! "
    "g-1095 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x402"
)


@pytest.mark.parametrize(
    ("line", "is_lost"),
    [
        (LOST, True),
        (LOST.replace("rcu_preempt", "rcu_sched").replace("   26.", "  119."), True),
        ("[   26.110237] rcu: rcu_preempt kthread starved for 5250 jiffies! g-1095 f0x0 RCU_GP_WAIT_FQS(5)", False),
        ("[   26.110236] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", False),
        (LOST.replace("   26.", " 4026."), False),
        ("somebody wrote: kthread timer wakeup didn't happen for 5250 jiffies", False),
    ],
    ids=["preemptible", "not preemptible", "starved", "stalled", "a system that has run for an hour", "no kernel"],
)
def test_only_a_kernel_that_boots_and_misses_its_timer_has_lost_it(line: str, is_lost: bool) -> None:
    assert timer_was_lost(line) is is_lost


def test_each_line_of_a_console_is_read_once_though_it_comes_in_pieces_and_the_log_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "console.log"
    log.write_text(LOST + "\n")
    watch = ConsoleWatch(log)
    assert not watch.has_lost_timer(), "that was of the start before"
    with log.open("a") as file:
        file.write(LOST[:40])
        file.flush()
        assert not watch.has_lost_timer()
        file.write(LOST[40:] + "\r\n")
    assert watch.has_lost_timer()
    assert not watch.has_lost_timer()
    log.write_text(LOST + "\n")
    assert watch.has_lost_timer()


def program(folder: Path, *lives: str) -> list[str]:
    """A fake emulator that says one of `lives` in each of its lives, and hangs unless it is the last."""
    source = f"""
import pathlib, time
lives = pathlib.Path({str(folder / "lives")!r})
lived = len(lives.read_text()) if lives.exists() else 0
lives.write_text("x" * (lived + 1))
print({lives!r}[lived], flush=True)
time.sleep(600 if lived < {len(lives) - 1} else 0)
"""
    return [sys.executable, "-c", source]


@pytest.mark.programs
def test_a_guest_that_lost_its_timer_is_started_again_and_counted(tmp_path: Path) -> None:
    heard = Heard()
    with (
        pytest.warns(EmulatorFault, match="started again.*didn't happen") as counted,
        emulator(program(tmp_path, LOST, "it runs"), heard),
    ):
        heard.line("it runs")
    assert len(counted) == 1
    assert heard.console == ["it runs"]


@pytest.mark.programs
def test_a_guest_that_loses_it_twice_fails_its_test(tmp_path: Path) -> None:
    heard = Heard()
    with (
        pytest.warns(EmulatorFault),
        emulator(program(tmp_path, LOST, LOST), heard),
        pytest.raises(AssertionError, match=r"never heard: up; the console said:\n.*didn't happen"),
    ):
        heard.wait_for("up", lambda: next((each for each in heard.console if each == "up"), None))
    assert (tmp_path / "lives").read_text() == "xx"


@pytest.mark.programs
def test_a_guest_that_has_reported_is_not_started_again(tmp_path: Path) -> None:
    heard = Heard(posts=[{"stage": "Image"}])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with emulator(program(tmp_path, LOST), heard):
            heard.wait_for("its end", lambda: heard.ended or None)
    assert heard.console == [LOST]
