"""Keeps child processes running (nginx, dnsmasq): started, started again when they end, ended with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

import structlog

from provisioner.boot.tftp.dnsmasq import SETPRIV

log = structlog.get_logger(__name__)

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
SETTLED_SECONDS: Final = 60.0
"""A child that ran this long is started again at once when it ends."""
MOST_LINE_BYTES: Final = 4096

_IF_PARENT_LIVES: Final = '[ "$PPID" = "$0" ] && exec "$@"'

Enter = Callable[[Sequence[str]], list[str]]
"""Puts a command into the place where its program is: itself on a boot host, a chroot in the lab."""


def run_here(command: Sequence[str]) -> list[str]:
    """The command as it is."""
    return list(command)


class Child:
    """One program, kept running between `run` and `stop`.

    `heard`: given each line that the program writes to its standard error, which is ours where it is absent; what it
    does not say to have dealt with is logged. `before`: done before each start.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        privileges: Sequence[str] = (),
        enter: Enter = run_here,
        stop_seconds: float = 10,
        heard: Callable[[str], bool] | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self.restarts = 0
        """How often it was started after it had ended."""
        self._heard, self._before = heard, before
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
                self._before()
                process = subprocess.Popen(
                    self.command,
                    stdin=subprocess.DEVNULL,
                    stderr=subprocess.PIPE if self._heard is not None else None,
                    process_group=0,
                )
            except OSError as error:
                log.error("program was not started", program=self.name, error=str(error), again_in_seconds=pause)
            else:
                with self._lock:
                    self._process = process
                log.info("program was started", program=self.name, pid=process.pid)
                if process.stderr is not None:
                    name = f"{self.name}-log"
                    threading.Thread(target=self._hear, args=(process.stderr,), name=name, daemon=True).start()
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
            self.restarts += 1
        self._end()

    def _watch(self, process: subprocess.Popen[bytes], stop: threading.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.2)
                return

    def _hear(self, said: IO[bytes]) -> None:
        """Read to the end, whatever comes: a program whose pipe is full waits."""
        with said:
            while line := said.readline(MOST_LINE_BYTES):
                text = line.decode(errors="replace").rstrip("\n")
                try:
                    is_dealt_with = self._heard is not None and self._heard(text)
                except Exception:
                    log.exception("line of a program was not read", program=self.name)
                    continue
                if not is_dealt_with:
                    log.info("program said", program=self.name, said=text)

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
