"""A run of `python -m tests.suite` in a run of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suite.costs import compare, read_costs, render
from tests.suite.executed import ASSERTIONS, find_unexecuted

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]
FIRST = """
import pytest, time

@pytest.fixture(scope="module")
def part():
    time.sleep(0.5)

def test_it(part): ...
"""
SECOND = """
def test_that_spends_a_while():
    for _ in range(3_000_000): pass

def test_that_fails():
    assert 1 == 2, "as it must"
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A run over two files by two workers, one of whose tests fails; and its report."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, source in (("test_first", FIRST), ("test_second", SECOND)):
        (folder / f"{name}.py").write_text(source)
    report = tmp_path_factory.mktemp("report")
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }  # no worker of ours
    environment = inherited | {"PYTHONPATH": str(ROOT), "TEST_REPORT": str(report)}
    command = [sys.executable, "-m", "pytest", "-p", "tests.suite.recorder", "-p", "no:cacheprovider", "-n", "2"]
    done = subprocess.run(
        [*command, f"--basetemp={folder}/files"],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done, report


def test_every_test_is_recorded_once_with_what_it_cost(
    ran: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    lines = [json.loads(line) for file in ran[1].glob("*.jsonl") for line in file.read_text().splitlines()]
    tests = {line["name"]: line for line in lines if line["kind"] == "test"}
    assert sorted(tests) == [
        "test_first.py::test_it", "test_second.py::test_that_fails", "test_second.py::test_that_spends_a_while",
    ]  # fmt: skip
    assert tests["test_second.py::test_that_fails"]["outcome"] == "failed"
    spent = tests["test_second.py::test_that_spends_a_while"]["processor_seconds"]
    assert spent > tests["test_first.py::test_it"]["processor_seconds"]


def test_the_start_of_a_shared_fixture_is_not_counted_as_its_first_test(
    ran: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    costs = read_costs(ran[1])
    assert costs.fixtures["test_first.py::part"].wall_seconds >= 0.5
    assert costs.files["test_first.py"].wall_seconds < costs.fixtures["test_first.py::part"].wall_seconds
    summary = "\n".join(render(costs))
    assert "fixture test_first.py::part" in summary
    assert "| fixture test_first.py::part |" in "\n".join(compare(costs, costs))


def test_a_failure_is_explained_in_the_report(ran: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, report = ran
    assert done.returncode == 1
    why, kept, repeat = (report / "failed.txt").read_text().splitlines()
    assert why == "test_second.py::test_that_fails: AssertionError: as it must assert 1 == 2"
    assert "are kept in" in kept
    assert repeat == 'make test TESTS="test_second.py::test_that_fails"'


THIRD = """
import pytest

def helper(found):
    assert found
    for each in found[1:]:
        assert each > 1

@pytest.mark.parametrize("found", [[], [1]])
def test_that_executes_one_of_two(found):
    assert isinstance(found, list)
    for each in found[1:]:
        assert each > 1

def test_that_calls_a_helper():
    helper([1])

@pytest.mark.skip
def test_that_is_skipped():
    assert 1
"""


def test_assertions_that_no_test_executed_are_listed_but_not_of_tests_that_were_skipped(tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\nenable_assertion_pass_hook = true\n")
    third = tmp_path / "test_third.py"
    for source, expected in ((THIRD, [13]), (THIRD.replace("@pytest.mark.skip\n", "\n"), [7, 13])):
        third.write_text(source)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.suite.recorder", "-p", "no:cacheprovider", "-n", "2"],
            env=inherited | {"PYTHONPATH": str(ROOT), "TEST_REPORT": str(report), ASSERTIONS: "1"},
            cwd=tmp_path, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert find_unexecuted(report, tmp_path) == [f"test_third.py:{line}" for line in expected]
        for file in report.iterdir():
            file.unlink()


def test_a_failing_run_ends_with_what_failed_and_the_command_that_repeats_it(tmp_path: Path) -> None:
    test = tmp_path / "test_second.py"
    test.write_text(SECOND)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_"))}
    inherited |= {"PYTEST_ADDOPTS": "-p tests.suite.recorder", "PROVISIONER_CACHE": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.suite", str(test)],
        env=inherited, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    why, _, repeat = done.stdout.splitlines()[-3:]
    assert "test_that_fails: AssertionError: as it must" in why
    assert repeat.startswith("make test TESTS=")
