"""Tries faults in one copied tree: first the tests without the fault, then with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from tests.mutants.copied_tree import CopiedTree
from tests.mutants.fault import Fault, NotApplicable, missing_tests
from tests.mutants.results import EQUIVALENT, ERROR, FOUND, NOT_APPLICABLE, SURVIVED, TIMED_OUT, Result
from tests.mutants.run import MORE_SECONDS, TESTS_SECONDS, Run, run_tests

NO_TESTS = 5
"""pytest's exit status where nothing was collected."""


class Trial:
    """`tests_seconds` and `more_seconds`: how long one run of a fault's tests may take. `run`: as `run_tests`."""

    def __init__(
        self,
        tree: CopiedTree,
        *,
        python: str = sys.executable,
        tests_seconds: float = TESTS_SECONDS,
        more_seconds: float = MORE_SECONDS,
        run: Callable[..., Run] = run_tests,
    ) -> None:
        self._tree = tree
        self._python = python
        self._limits = (tests_seconds, max(tests_seconds, more_seconds))
        self._run_tests = run
        self._without: dict[tuple[str, ...], str | None] = {}

    def of(self, fault: Fault) -> Result:
        """What the fault's tests make of it; `more` runs only if the others miss it."""
        missing = missing_tests((*fault.tests, *fault.more), self._tree.root)
        selections = [tuple(test for test in tests if test not in missing) for tests in (fault.tests, fault.more)]
        if not any(selections):
            return Result(NOT_APPLICABLE, by="none of its tests exists", missing=missing)
        result = Result(SURVIVED)
        for tests, limit_seconds in zip(selections, self._limits, strict=True):
            if not tests or result.outcome != SURVIVED:
                continue
            try:
                result = self._try(fault, tests, limit_seconds, result.seconds)
            except NotApplicable as error:
                return Result(NOT_APPLICABLE, by=str(error))
        if result.outcome == SURVIVED and fault.equivalent is not None:
            result = replace(result, outcome=EQUIVALENT, by=fault.equivalent)
        return replace(result, missing=missing)

    def _try(self, fault: Fault, tests: tuple[str, ...], limit_seconds: float, seconds: float) -> Result:
        with self._tree.planted(fault):
            pass  # what does not apply costs no run
        if tests not in self._without:
            self._without[tests] = _what_fails(self._run(tests, limit_seconds), limit_seconds)
        if (problem := self._without[tests]) is not None:
            return Result(ERROR, by=problem)
        with self._tree.planted(fault):
            run = self._run(tests, limit_seconds)
        seconds = round(seconds + run.seconds, 1)
        if run.status is None:
            return Result(TIMED_OUT, seconds, f"more than {limit_seconds:g} s")
        if run.status in (0, NO_TESTS):
            return Result(SURVIVED, seconds)
        return Result(FOUND, seconds, run.failed or f"exit status {run.status}")

    def _run(self, tests: tuple[str, ...], limit_seconds: float) -> Run:
        return self._run_tests(tests, self._tree.root, python=self._python, limit_seconds=limit_seconds)


def _what_fails(run: Run, limit_seconds: float) -> str | None:
    """Why a run without a fault proves nothing; None if its tests pass."""
    if run.status is None:
        return f"without the fault, its tests take more than {limit_seconds:g} s"
    if run.status not in (0, NO_TESTS):
        last = (run.output.strip().splitlines() or ["no output"])[-1]
        return f"without the fault, its tests fail: {run.failed or last}"
    return None if run.passed else "without the fault, none of its tests runs: all are skipped, or none is selected"
