"""Fails a test that is marked `fast` and starts a program, at the line that starts it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Generator, Mapping
from typing import Any, Final

import pytest

REMEDY: Final = "mark it: `pytestmark = pytest.mark.programs` for the module, `@pytest.mark.programs` for one test"
EVENTS: Final[Mapping[str, int | None]] = {
    "subprocess.Popen": 1,
    "os.posix_spawn": 1,
    "os.exec": 1,
    "os.system": 0,
    "pty.spawn": 0,
    "os.fork": None,
    "os.forkpty": None,
}
"""Audit events of Python that precede a new process → which of their arguments is the command."""


class Guard:
    """Knows the running test, if that is fast, and what it tried to start.

    An audit hook sees the events of all threads. Threads that are older than the test belong to another test's fixture.
    """

    def __init__(self) -> None:
        self.attempts: list[str] | None = None
        """None while no fast test runs."""
        self._older_threads: frozenset[int | None] = frozenset()

    def begin(self) -> None:
        self._older_threads = frozenset(each.ident for each in threading.enumerate()) - {threading.get_ident()}
        self.attempts = []

    def end(self) -> None:
        self.attempts = None

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in EVENTS or self.attempts is None or threading.get_ident() in self._older_threads:
            return
        self.attempts.append(attempt := describe(event, arguments))
        raise pytest.fail.Exception(message(attempt))


def describe(event: str, arguments: tuple[Any, ...]) -> str:
    """`nft -f -`, `a fork of this process`."""
    which = EVENTS[event]
    if which is None:
        return "a fork of this process"
    command = arguments[which]
    words = [command] if isinstance(command, str | bytes | os.PathLike) else command
    return " ".join(os.fsdecode(word) for word in words)[:200]


def message(attempt: str) -> str:
    return f"a test marked `fast` started a program: {attempt}; {REMEDY}"


GUARD: Final = Guard()


def pytest_configure() -> None:
    sys.addaudithook(GUARD.audit)  # once a process: a hook cannot be removed


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if item.get_closest_marker("fast") is None:
        return (yield)
    GUARD.begin()
    try:
        return (yield)
    finally:
        GUARD.end()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """What ends now may be a fixture of other tests, which this one was the last to follow."""
    if not GUARD.attempts:
        GUARD.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail the test also where its code caught the exception, or where this ended another thread."""
    report = yield
    if GUARD.attempts:
        if report.outcome != "failed":
            report.outcome, report.longrepr = "failed", message(GUARD.attempts[0])
        GUARD.attempts.clear()  # one failure is enough
    return report
