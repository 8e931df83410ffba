"""How far long work is, for a person who waits: a line that is redrawn on a terminal, plain lines elsewhere.

It goes to stderr: stdout stays what other programs read.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Final, Self, TextIO

from provisioner.cli import printer

_TERMINAL_SECONDS: Final = 0.2
_PLAIN_SECONDS: Final = 15.0
_BAR_CHARACTERS: Final = 24
_ERASE: Final = "\r\x1b[K"


def render(what: str, done: int, total: int | None, seconds: float, *, bar: bool) -> str:
    """`what`, and how far it is after `seconds`: with a `total` also how fast it goes, and what is left."""
    if total is None:
        return f"{what} … {seconds:.0f} s"
    rate = done / seconds if seconds > 0 else 0.0
    left = f", {(total - done) / rate:.0f} s left" if rate and done < total else ""
    filled = _BAR_CHARACTERS * done // total if total else _BAR_CHARACTERS
    drawn = f"[{'#' * filled}{'-' * (_BAR_CHARACTERS - filled)}] " if bar else ""
    return f"{what} {drawn}{done:,} of {total:,}, {rate:,.0f}/s{left}"


class Progress:
    """Shows what is under way while its block runs. Usable from several threads.

    On a terminal the line goes when the block ends. Elsewhere there is a plain line every quarter of a minute, and so
    none for work that is short.
    """

    def __init__(self, stream: TextIO | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress-bar", daemon=True)
        self._what, self._done, self._since = "", 0, clock()
        self._total: int | None = None

    def begin(self, what: str, total: int | None = None) -> None:
        """Say what is done from here on, of how many pieces if that is known."""
        with self._lock:
            self._what, self._done, self._total, self._since = what, 0, total, self._clock()

    def advance(self, count: int = 1) -> None:
        """So many pieces are done."""
        with self._lock:
            self._done += count

    def line(self, text: str) -> None:
        """A line for stdout that stays."""
        with self._lock:
            self._erase()
            printer.say(text)

    def show(self) -> None:
        """Draw, or print, how far it is now."""
        with self._lock:
            if not self._what:
                return
            text = render(self._what, self._done, self._total, self._clock() - self._since, bar=self._terminal)
            if self._terminal:
                self._stream.write(_ERASE + text[: shutil.get_terminal_size().columns - 1])
            else:
                self._stream.write(text + "\n")
            self._stream.flush()

    def _erase(self) -> None:
        if self._terminal:
            self._stream.write(_ERASE)
            self._stream.flush()

    def _run(self) -> None:
        while not self._stop.wait(_TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS):
            self.show()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._erase()
