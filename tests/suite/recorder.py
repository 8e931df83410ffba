"""Records what each test and each shared fixture costs, one JSON line each, in a file of its own for each process."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.suite.executed import ASSERTIONS, ExecutedAssertions
from tests.suite.processor_time import start_meter

FOLDER: Final = "TEST_REPORT"
"""Variable of the environment: the folder of the report; nothing is recorded without it."""
FAILED: Final = "failed.txt"
"""In the report of a run that failed: what failed, why, and how to repeat it."""
MOST_REPEATED: Final = 10
"""Of more tests that failed, the files are named."""
MOST_OF_A_REASON: Final = 300
_REPORT: Final = pytest.StashKey[Path]()


@dataclass
class Entry:
    """One line of a report. Seconds; what happened inside an entry but is an entry of its own is not counted twice."""

    kind: str
    """`test`, `fixture`, `collection`."""
    name: str
    file: str
    wall_seconds: float = 0.0
    processor_seconds: float = 0.0
    outcome: str = ""


class Recorder:
    """Measures nested spans and writes them as they end."""

    def __init__(self, folder: Path) -> None:
        self._processor, self.counts = start_meter()
        self._file = (folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}.jsonl").open("w")
        self._open: list[tuple[Entry, float, float]] = []
        self.write(Entry("meter", self.counts, ""))

    def write(self, entry: Entry) -> None:
        self._file.write(json.dumps(asdict(entry)) + "\n")
        self._file.flush()

    def begin(self, entry: Entry) -> None:
        self._open.append((entry, time.monotonic(), self._processor()))

    def end(self) -> Entry:
        entry, began, spent = self._open.pop()
        wall, processor = time.monotonic() - began, self._processor() - spent
        entry.wall_seconds += wall
        entry.processor_seconds += processor
        if self._open:
            outer = self._open[-1][0]
            outer.wall_seconds -= wall
            outer.processor_seconds -= processor
        self.write(entry)
        return entry

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.begin(Entry("test", item.nodeid, item.nodeid.partition("::")[0]))
        try:
            return (yield)
        finally:
            self.end()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if self._open and (report.when == "call" or report.outcome != "passed"):
            self._open[0][0].outcome = report.outcome
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        self.begin(Entry("fixture", f"{fixturedef.baseid}::{fixturedef.argname}", request.node.nodeid))
        try:
            return (yield)
        finally:
            self.end()

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        self.begin(Entry("collection", "collection", ""))
        try:
            return (yield)
        finally:
            self.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """End a run that failed with what failed and why, the command that repeats it, and where its files are."""
    reports = [report for key in ("failed", "error") for report in terminalreporter.stats.get(key, ())]
    failed = {report.nodeid: report for report in reports}
    if not failed or "PYTEST_XDIST_WORKER" in os.environ:
        return
    tests = [shlex.quote(test) for test in failed]
    shown = tests if len(tests) <= MOST_REPEATED else dict.fromkeys(test.partition("::")[0] for test in failed)
    lines = [f"{test}: {_reason(report)}" for test, report in list(failed.items())[:MOST_REPEATED]]
    if config.option.basetemp:
        lines.append(f"files and logs of the failed tests are kept in {config.option.basetemp}")
    lines.append(f'make test TESTS="{" ".join(shown)}"')
    folder = config.stash.get(_REPORT, None)
    if folder is not None:
        (folder / FAILED).write_text("\n".join(lines) + "\n")
        return
    terminalreporter.section("repeat what failed")
    for line in lines:
        terminalreporter.write_line(line)


def _reason(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    words = str(crash.message if crash is not None else report.longrepr).strip().splitlines()
    return " ".join(words)[:MOST_OF_A_REASON]


def pytest_configure(config: pytest.Config) -> None:
    if FOLDER not in os.environ:
        return
    is_worker = "PYTEST_XDIST_WORKER" in os.environ
    is_controller = not is_worker and bool(getattr(config.option, "numprocesses", None))
    folder = config.stash[_REPORT] = Path(os.environ[FOLDER])
    if is_worker or is_controller:
        from tests.suite.schedule import Scheduling

        config.pluginmanager.register(Scheduling(folder), "schedule")
    if not is_controller:
        del os.environ[FOLDER]  # a run of pytest inside a test is a part of that test
        config.pluginmanager.register(Recorder(folder), "recorder")
        if ASSERTIONS in os.environ:
            config.pluginmanager.register(ExecutedAssertions(folder, config.rootpath), "executed")
