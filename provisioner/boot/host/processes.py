"""Keeps child processes running (nginx, dnsmasq): started, started again when they end, ended with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from provisioner.boot.host.tftp import SETPRIV

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
SETTLED_SECONDS: Final = 60.0
"""A child that ran this long is started again at once when it ends."""

_IF_PARENT_LIVES: Final = '[ "$PPID" = "$0" ] && exec "$@"'

Enter = Callable[[Sequence[str]], list[str]]
"""Puts a command into the place where its program is: itself on a boot host, a chroot in the lab."""


def run_here(command: Sequence[str]) -> list[str]:
    """The command as it is."""
    return list(command)


class Child:
    """One program, kept running between `run` and `stop`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        privileges: Sequence[str] = (),
        enter: Enter = run_here,
        stop_seconds: float = 10,
    ) -> None:
        self.name = name
        # The kernel ends the child when the thread that started it is gone, however that came about; a parent that was
        # gone before it was asked to is noticed by its number. `privileges`, which change the user, stand in front: the
        # kernel forgets it with that. What `enter` puts in front must exec, not fork.
        dies_with_us = [SETPRIV, "--pdeathsig", "TERM", "/bin/sh", "-c", _IF_PARENT_LIVES, str(os.getpid())]
        self.command = enter([*privileges, *dies_with_us, *command])
        self._stop_seconds = stop_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        with self._lock:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    def send_signal(self, number: int) -> None:
        """Send a signal if the child runs."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                self._process.send_signal(number)

    def run(self, stop: threading.Event) -> None:
        """Keep the program running until `stop`. Call it in a thread that lives as long as the child shall."""
        pause = FIRST_PAUSE_SECONDS
        while not stop.is_set():
            began = time.monotonic()
            try:
                process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, process_group=0)
            except OSError as error:
                log.error("program was not started", program=self.name, error=str(error), again_in_seconds=pause)
            else:
                with self._lock:
                    self._process = process
                log.info("program was started", program=self.name, pid=process.pid)
                self._watch(process, stop)
                if stop.is_set():
                    break
                _end_orphans(process.pid)
                lasted = time.monotonic() - began
                if lasted > SETTLED_SECONDS:
                    pause = FIRST_PAUSE_SECONDS
                log.warning(
                    "program ended by itself",
                    program=self.name,
                    status=process.returncode,
                    lasted_seconds=round(lasted, 1),
                    again_in_seconds=pause,
                )
            stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._end()

    def _watch(self, process: subprocess.Popen[bytes], stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.2)
                return

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(timeout=self._stop_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _end_orphans(process.pid)
        log.info("program was stopped", program=self.name, status=process.returncode)


def _end_orphans(group: int) -> None:
    """nginx's workers outlive a master that was killed, and keep its ports: the next one could not have them."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
