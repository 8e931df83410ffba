"""One run of pytest in the copied tree, and what came of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TESTS_SECONDS: Final = 60
MORE_SECONDS: Final = 300
_GRACE_SECONDS: Final = 10
"""For fixtures to end what they started, once a run is over its limit."""
_NOT_PASSED_ON: Final = ("GOLDEN", "PYTEST_ADDOPTS")
"""Golden files that are written anew would match any fault."""


@dataclass(frozen=True)
class Run:
    """`status`: pytest's exit status, None at the time limit. `failed`: the first test that failed, if it is known."""

    status: int | None
    seconds: float
    passed: int
    failed: str | None
    output: str


def run_tests(tests: Sequence[str], root: Path, *, python: str, limit_seconds: float = TESTS_SECONDS) -> Run:
    """Run `tests` until one fails, with the same random input each time."""
    with tempfile.TemporaryDirectory(prefix="mutants-tests-") as folder:
        command = [python, "-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        environment = {key: value for key, value in os.environ.items() if key not in _NOT_PASSED_ON}
        environment |= {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        output = Path(folder, "output")
        began = time.monotonic()
        # A file, as a program that outlives pytest would keep a pipe open.
        with output.open("wb") as written:
            process = subprocess.Popen(
                [*command, f"--basetemp={folder}/tmp", *tests],
                cwd=root, env=environment, stdout=written, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            status = _wait(process, limit_seconds)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        seconds = time.monotonic() - began
        text = output.read_text(errors="replace")
    shutil.rmtree(root / ".hypothesis", ignore_errors=True)  # the input that found one fault is not kept for the next
    passed = re.search(r"^.*?(\d+) passed.* in [\d.]+s", text, re.MULTILINE)
    failed = re.search(r"^(?:FAILED|ERROR:?) (.+?)(?: - .*)?$", text, re.MULTILINE)
    return Run(status, seconds, int(passed[1]) if passed else 0, failed[1] if failed else None, text)


def _wait(process: subprocess.Popen[bytes], limit_seconds: float) -> int | None:
    try:
        return process.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_SECONDS)
        return None
