"""An emulated machine under test, and what its console says."""

from __future__ import annotations

import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lab.machine.lost_timer import timer_was_lost

BOUND_SECONDS: Final = 400
"""Generous: a busy machine is several times slower."""

T = TypeVar("T")


@dataclass
class Heard:
    """What the guest said so far: console lines and progress posts. Waiting ends with the guest, too."""

    console: list[str] = field(default_factory=list)
    posts: list[dict[str, str]] = field(default_factory=list)
    ended: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, target: list[T], item: T) -> None:
        with self.changed:
            target.append(item)
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for(self, what: str, found: Callable[[], T | None], seconds: float = BOUND_SECONDS) -> T:
        with self.changed:
            self.changed.wait_for(lambda: self.ended or found() is not None, seconds)
            result = found()
            if result is None:
                raise AssertionError(f"never heard: {what}; the console said:\n" + "\n".join(self.console[-60:]))
            return result

    def line(self, text: str) -> str:
        """Wait for a console line that contains `text`."""
        return self.wait_for(text, lambda: next((line for line in self.console if text in line), None))

    def post(self, stage: str, text: str = "") -> dict[str, str]:
        """Wait for a progress report of `stage` whose message contains `text`."""
        return self.wait_for(
            f"{stage} {text}",
            lambda: next((p for p in self.posts if p["stage"] == stage and text in p.get("message", "")), None),
        )

    def messages(self) -> list[str]:
        return [post["message"] for post in self.posts if "message" in post]


class EmulatorFault(UserWarning):
    """A guest was started again because its emulator failed. The warnings at the end of a run list and count them."""


@contextmanager
def emulator(command: Sequence[str], heard: Heard) -> Iterator[None]:
    """QEMU, whose console is heard until the block ends. It is started again if its guest lost its timer, once, and
    only if the guest has not reported anything yet."""
    lost: list[str] = []
    lock, is_over = threading.Lock(), threading.Event()

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    running = start()

    def says_that_it_hangs() -> bool:
        assert running.stdout is not None
        with running.stdout as console:
            for line in console:
                text = line.decode(errors="replace").rstrip()
                heard.add(heard.console, text)
                if timer_was_lost(text) and not lost and not heard.posts:
                    lost.append(text)
                    return True
        return False

    def read() -> None:
        nonlocal running
        while says_that_it_hangs():
            with lock:
                if is_over.is_set():
                    break
                running.kill()
                running.wait()
                heard.console.clear()
                running = start()
        heard.end()

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        with lock:
            is_over.set()
            running.kill()
        running.wait()
        reader.join()
        for line in lost:
            warnings.warn(f"a guest was started again: {line}", EmulatorFault, stacklevel=3)
