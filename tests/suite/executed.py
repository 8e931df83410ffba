"""Assertions that no test executed, though all tests passed that have them: what they say was never looked at.

pytest tells of each assertion that holds (`enable_assertion_pass_hook` in pyproject.toml) if a plugin listens; this one
listens where it is asked to. Modules that pytest does not rewrite (helpers of the tests) are not covered.
"""

from __future__ import annotations

import ast
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

FILES: Final = "executed-*.json"
ASSERTIONS: Final = "LISTED_ASSERTIONS"
"""In the environment of a run that is to be looked at. It takes a sixth more processor time: pytest words each
assertion that holds, also one that compares megabytes."""


class ExecutedAssertions:
    """Writes the lines of this process's assertions into the folder of the report: path → lines."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._file = folder / FILES.replace("*", f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}-{os.getpid()}")
        self._root = f"{root}{os.sep}"
        self._lines: defaultdict[str, set[int]] = defaultdict(set)

    def pytest_assertion_pass(self, lineno: int) -> None:
        frame = sys._getframe()
        while not frame.f_code.co_filename.startswith(self._root) or frame.f_code.co_filename == __file__:
            if frame.f_back is None:
                return
            frame = frame.f_back
        self._lines[frame.f_code.co_filename].add(lineno)

    def pytest_sessionfinish(self) -> None:
        lines = {path.removeprefix(self._root): sorted(found) for path, found in self._lines.items()}
        self._file.write_text(json.dumps(lines))


def find_unexecuted(report: Path, root: Path) -> list[str]:
    """One line for each assertion of tests that ran, and all passed, that was not executed. root: of the checkout.

    A helper's are looked at where each test of its module ran.
    """
    executed: defaultdict[str, set[int]] = defaultdict(set)
    for file in report.glob(FILES):
        for path, lines in json.loads(file.read_text()).items():
            executed[path].update(lines)
    found = []
    for path, outcomes in sorted(_outcomes(report).items()):
        module = ast.parse((root / path).read_text())
        passed = {name for name, of_test in outcomes.items() if of_test == {"passed"}}
        expected = sorted(set(_expected(module, passed)))
        if expected and not executed[path]:
            found.append(
                f"{path}: no assertion was recorded; if it is so again, delete {Path(path).parent}/__pycache__"
            )
        elif passed:
            found += [f"{path}:{line}" for line in expected if line not in executed[path]]
    return found


def _outcomes(report: Path) -> Mapping[str, Mapping[str, set[str]]]:
    """By module and function."""
    found: defaultdict[str, defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for file in report.glob("*.jsonl"):
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            if entry["kind"] == "test":
                name = entry["name"].partition("[")[0].rpartition("::")[2]
                found[entry["file"]][name].add(entry["outcome"])
    return found


def _expected(module: ast.Module, passed: set[str]) -> Iterator[int]:
    functions = [node for node in module.body if isinstance(node, ast.FunctionDef)]
    whole = passed.issuperset(each.name for each in functions if each.name.startswith("test_"))
    for function in functions:
        if function.name in passed or (whole and not function.name.startswith("test_")):
            yield from (node.lineno for node in ast.walk(function) if isinstance(node, ast.Assert))
