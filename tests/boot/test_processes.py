"""Children are kept running, and end with their parent however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.boot.host import processes
from provisioner.boot.host.nginx_upkeep import rotate_access_logs
from provisioner.boot.host.processes import Child
from tests.tools import is_running, need_root

SLEEP = ["/bin/sleep", "1000"]


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_a_child_that_dies_is_started_again_and_stopped_in_the_end() -> None:
    child, stop = Child("sleep", SLEEP), threading.Event()
    thread = threading.Thread(target=child.run, args=(stop,))
    thread.start()
    wait_until(lambda: child.pid is not None)
    first = child.pid
    assert first is not None
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: child.pid not in (None, first))
    second = child.pid
    assert second is not None
    stop.set()
    thread.join(60)
    assert not is_running(second)


def test_a_program_that_is_missing_is_tried_again_ever_more_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FIRST_PAUSE_SECONDS", 0.001)
    pauses: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            if len(pauses) >= 6:
                self.set()
            return self.is_set()

    Child("missing", ["/nonexistent"], enter=lambda command: ["/nonexistent"]).run(Stop())
    assert pauses == [0.001 * 2**i for i in range(6)]


def test_a_child_that_will_not_stop_is_killed() -> None:
    child = Child("deaf", ["/bin/sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], stop_seconds=0.5)
    stop = threading.Event()
    thread = threading.Thread(target=child.run, args=(stop,))
    thread.start()
    wait_until(lambda: child.pid is not None)
    pid = child.pid
    assert pid is not None
    wait_until(lambda: "sh" in Path(f"/proc/{pid}/comm").read_text())
    stop.set()
    thread.join(60)
    assert not is_running(pid)


@pytest.mark.parametrize("user", [None, "www-data"])
def test_children_die_with_a_parent_that_is_killed(user: str | None) -> None:
    """SIGKILL leaves no time to clean up; the kernel does it."""
    if user is not None:
        need_root("run a program as another user")
    program = (
        "import sys, threading, time\n"
        "import structlog\n"
        "from provisioner.boot.host.processes import Child\n"
        "from provisioner.boot.tftp.dnsmasq import run_as\n"
        "structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))\n"
        f"child = Child('sleep', ['/bin/sleep', '1000'], privileges=run_as({user!r}))\n"
        "stop = threading.Event()\n"
        "threading.Thread(target=child.run, args=(stop,)).start()\n"
        "while child.pid is None: time.sleep(0.01)\n"
        "print('child', child.pid, flush=True)\n"
        "stop.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = next(int(line.split()[1]) for line in parent.stdout if line.startswith("child "))
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text().strip() == "sleep")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    wait_until(lambda: not is_running(pid))


def test_a_child_whose_parent_was_killed_before_it_could_be_told_does_not_begin(tmp_path: Path) -> None:
    """It would keep the ports of the next one."""
    begun = tmp_path / "begun"
    command = Child("late", ["/usr/bin/touch", str(begun)]).command
    subprocess.run(["/bin/sh", "-c", '("$@"; true)', "sh", *command], check=True)
    assert not begun.exists()
    subprocess.run(command, check=True)
    assert begun.exists()


def test_workers_do_not_outlive_a_master_that_was_killed(tmp_path: Path) -> None:
    """They would hold its ports, and the next master could not have them."""
    noted = tmp_path / "worker"
    child = Child("master", ["/bin/sh", "-c", f"sleep 1000 & echo $! > {noted}; wait"])
    stop = threading.Event()
    thread = threading.Thread(target=child.run, args=(stop,))
    thread.start()
    wait_until(lambda: noted.exists() and noted.read_text().strip() != "")
    worker = int(noted.read_text())
    noted.unlink()
    child.send_signal(signal.SIGKILL)
    wait_until(lambda: not is_running(worker))
    wait_until(noted.exists)
    stop.set()
    thread.join(60)


def test_a_full_access_log_makes_room(tmp_path: Path) -> None:
    path, stop = tmp_path / "access.json", threading.Event()
    path.write_text("x" * 100)
    signals: list[int] = []

    class FakeNginx:
        def send_signal(self, number: int) -> None:
            signals.append(number)
            stop.set()

    class Soon(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return stop.is_set()

    rotate_access_logs([path], FakeNginx(), Soon(), largest_bytes=99)  # type: ignore[arg-type]
    assert not path.exists()
    assert (tmp_path / "access.json.1").stat().st_size == 100
    assert signals == [signal.SIGUSR1]
