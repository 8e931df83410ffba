"""`make test` behind its preparations: runs the tests, and explains failures and costs.

    python -m tests.suite [--repeat N] [--busy N] [--assertions] [--marked EXPRESSION] [PATH…]

Exit status: that of the first run of pytest that failed, else 0.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.suite.costs import read_costs, render
from tests.suite.executed import ASSERTIONS, find_unexecuted
from tests.suite.processor_time import remove_empty_groups
from tests.suite.recorder import FAILED, FOLDER
from tests.suite.schedule import WORKERS
from tests.tools import CACHE

KEPT_REPORTS: Final = 10
GO_GARBAGE_PERCENT: Final = 400
"""API servers of tests may grow before they collect garbage: they are small, and live for minutes."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite")
    parser.add_argument("--repeat", type=int, default=1, help="run everything so many times, until a run fails")
    parser.add_argument("--busy", type=int, default=0, help="keep so many cores busy beside the tests")
    parser.add_argument("--assertions", action="store_true", help="list the assertions that no test executed")
    parser.add_argument("--marked", default="not long", help="pytest's -m")
    parser.add_argument("paths", nargs="*", help="all tests by default")
    given = parser.parse_args(arguments)
    if given.assertions:
        os.environ[ASSERTIONS] = "1"
    for number in range(1, given.repeat + 1):
        folder = _new_report()
        print(f"run {number} of {given.repeat}; its report: {folder}", flush=True)
        with _busy_cores(given.busy):
            status = _run_pytest(folder, given.marked, given.paths)
        if status:
            return status
    return 0


def _run_pytest(folder: Path, marked: str, paths: Sequence[str]) -> int:
    is_one_file = len(paths) == 1 and ".py" in paths[0]
    workers = () if is_one_file else ("--numprocesses", str(WORKERS))
    files = tempfile.mkdtemp(prefix="tests-")  # a short path: tests make sockets in it
    command = [sys.executable, "-m", "pytest", "--basetemp", files, *workers, "-m", marked, *paths]
    environment = {**os.environ, FOLDER: str(folder), "GOGC": str(GO_GARBAGE_PERCENT)}
    began = time.monotonic()
    status = subprocess.run(command, env=environment, check=False).returncode
    seconds = time.monotonic() - began
    if status == 0:
        shutil.rmtree(files, ignore_errors=True)
    remove_empty_groups()
    summary = [f"the run took {seconds / 60:.1f} minutes", *render(read_costs(folder))]
    if status == 0 and ASSERTIONS in os.environ:
        summary += ["assertions that no test executed:", *find_unexecuted(folder, Path.cwd())]
    (folder / "summary.txt").write_text("\n".join(summary) + "\n")
    failed = folder / FAILED
    print("\n".join(summary), *failed.read_text().splitlines() if failed.exists() else (), sep="\n", flush=True)
    return status


def _new_report() -> Path:
    """A folder outside the checkout; the oldest ones go."""
    reports = CACHE / "test-reports"
    reports.mkdir(parents=True, exist_ok=True)
    for old in sorted(reports.iterdir())[: -KEPT_REPORTS + 1]:
        shutil.rmtree(old)
    folder = reports / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}"
    folder.mkdir()
    return folder


@contextmanager
def _busy_cores(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
