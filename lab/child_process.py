"""A child process that dies with its parent, writes a log, and is stopped with patience."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman

LOG_TAIL_LINES: Final = 15
_IF_PARENT_LIVES: Final = '[ "$PPID" = "$0" ] && exec "$@"'


class LabProcess:
    """One program of the lab.

    The kernel kills it when the *thread* that started it ends (PR_SET_PDEATHSIG), so start it from a thread that
    lives as long as the program shall. A parent that was gone before the kernel was asked is noticed by its number.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def guarded_command(self) -> tuple[str, ...]:
        """As it is started, by this process."""
        # setpriv rather than preexec_fn: that one may deadlock in a program with threads
        guard = ("setpriv", "--pdeathsig", "KILL", "--", "/bin/sh", "-c", _IF_PARENT_LIVES, str(os.getpid()))
        return (*guard, *self.command)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it; its output is appended to the log. Raises: NeedsHuman if it cannot be executed."""
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    self.guarded_command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C reaches us alone: we stop the parts in their order
                )
            except FileNotFoundError as error:
                message = f"{self.name} not started: {error.filename} is missing"
                raise NeedsHuman(message, hint="apt-get install util-linux") from error

    def stop(self, patience_seconds: float = 10.0) -> None:
        """Ask it to end; after `patience_seconds`, end it."""
        if not self.running:
            return
        assert self._process is not None  # noqa: S101 - for the type checker; `running` says so
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, as a power failure would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """The last lines of its log, for an error message."""
        if not self.log.exists():
            return "(no log)"
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        return "\n".join(line[:300] for line in lines)

    def exit_status(self) -> int | None:
        return self._process.poll() if self._process else None
