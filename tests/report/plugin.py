"""Records what each test and each shared fixture costs, one JSON line each, in a file of its own for each process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.report.processor_time import start_meter

FOLDER: Final = "TEST_REPORT"
"""Variable of the environment: the folder of the report; nothing is recorded without it."""


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
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
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


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER") is None and getattr(config.option, "numprocesses", None):
        return  # the workers record
    folder = os.environ.pop(FOLDER, None)  # runs of pytest inside a test are part of that test
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Recorder(Path(folder)), "cost-recorder")
