"""mstflint's programs, run with an end to their time and to what they print."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Final

PATIENCE_SECONDS: Final = 60.0
"""For one command. `mstconfig` takes seconds; where it asks firmware that does not answer it may never end."""
MOST_BYTES: Final = 262144
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_READ_BYTES: Final = 65536
_REAP_SECONDS: Final = 1.0
_MOST_LETTERS: Final = 400


class ToolFailed(Exception):
    """A command did not come to its end, or not to a good one. The message names it, and says what to do."""


@dataclass(frozen=True)
class Ran:
    """A command that ended. output: what it wrote to stdout and stderr."""

    argv: tuple[str, ...]
    status: int
    output: str

    def words(self) -> str:
        """The last of what it printed, as one line for people."""
        printable = "".join(letter if letter.isprintable() else " " for letter in self.output[-4 * _MOST_LETTERS :])
        return " ".join(printable.split())[-_MOST_LETTERS:] or "nothing"


class Tools:
    """Runs one command at a time. path: where programs are looked for."""

    def __init__(self, path: str = _PATH, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._path = path
        self._patience_seconds = patience_seconds
        self._killed: subprocess.Popen[bytes] | None = None

    def run(self, argv: Sequence[str]) -> Ran:
        """Run a command to its end, whatever its exit status is.

        Raises: ToolFailed if it is not there, does not end in time, or prints more than `MOST_BYTES`; it is killed
        then, with what it has started.
        """
        if self._killed is not None and self._killed.poll() is None:
            raise ToolFailed(
                f"{command(argv)} was not run: a command of before, process {self._killed.pid}, was killed and has not "
                "ended, as the card does not answer it; power-cycle the server"
            )
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": self._path, "LC_ALL": "C"},
                start_new_session=True,
            )
        except FileNotFoundError:
            words = f"the program {argv[0]} is not installed: boot the DPU with an image that has mstflint"
            raise ToolFailed(words) from None
        except OSError as error:
            raise ToolFailed(f"{command(argv)} could not be started: {error}") from error
        try:
            return self._follow(process, tuple(argv))
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def _follow(self, process: subprocess.Popen[bytes], argv: tuple[str, ...]) -> Ran:
        end = time.monotonic() + self._patience_seconds
        try:
            output = _read(process.stdout, end) if process.stdout is not None else b""
            status = process.wait(max(0.0, end - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired):
            self._kill(process)
            raise ToolFailed(
                f"{command(argv)} did not end within {self._patience_seconds:g} s and was killed: run it by hand on "
                "the DPU; where it hangs there, too, power-cycle the server"
            ) from None
        except OverflowError:
            self._kill(process)
            raise ToolFailed(f"{command(argv)} printed more than {MOST_BYTES} bytes and was killed") from None
        return Ran(argv, status, output.decode("utf-8", "replace"))

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """With all that it has started. One that waits in the kernel outlives it, and is remembered."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self._killed = process


def command(argv: Sequence[str]) -> str:
    """A command as it is told to people."""
    return f"`{' '.join(argv)}`"


def _read(stream: IO[bytes], end: float) -> bytes:
    """All of it. Raises: TimeoutError at the time `end`; OverflowError if it is more than `MOST_BYTES`."""
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLIN)
    content = b""
    while True:
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError
        piece = os.read(stream.fileno(), _READ_BYTES)
        if not piece:
            return content
        content += piece
        if len(content) > MOST_BYTES:
            raise OverflowError
