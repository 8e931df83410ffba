"""The runner, on a project of one module; pytest itself runs where it matters what it does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.mutants.__main__ import main, python_of
from tests.mutants.copied_tree import CopiedTree
from tests.mutants.fault import Fault, NotApplicable, choose_faults, plant, read_faults
from tests.mutants.results import EQUIVALENT, ERROR, FOUND, NOT_APPLICABLE, SURVIVED, TIMED_OUT
from tests.mutants.run import Run, run_tests
from tests.mutants.trial import Trial

pytestmark = pytest.mark.programs

MODULE = """\
LIMIT = 10

def allows(size):
    return size <= LIMIT
"""
TEST = """\
import module

def test_too_much_is_refused():
    assert not module.allows(11)
"""
BY_PROGRAM = """\
import os, subprocess, sys

def test_a_program_refuses_it_which_keeps_its_bytecode():
    program = "import module; assert not module.allows(11)"
    subprocess.run([sys.executable, "-c", program], env={"PYTHONPATH": os.environ["PYTHONPATH"]}, check=True)
"""
SKIPPED = """\
import pytest

def test_what_cannot_be_run_here():
    pytest.skip("a part is missing")
"""
ENDLESS = """\
import pathlib, time

def test_without_end():
    pathlib.Path("begun").touch()
    while True:
        time.sleep(1)
"""
LONG_SECONDS = 600
"""For pytest itself to run, also on a machine that is busy."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A git checkout with a link, and with a folder that git ignores."""
    root = tmp_path / "project"
    files = {
        "module.py": MODULE,
        "test_module.py": TEST,
        "test_by_program.py": BY_PROGRAM,
        "test_skipped.py": SKIPPED,
        "test_endless.py": ENDLESS,
        "test_more.py": "",
        ".gitignore": "__pycache__/\n",
        "__pycache__/stale.pyc": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "link.py").symlink_to("module.py")
    git = ["git", "-C", str(root), "-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *command], check=True)
    return root


@pytest.fixture
def tree(project: Path, tmp_path: Path) -> CopiedTree:
    return CopiedTree(project, tmp_path / "copy")


def fault(**changes: object) -> Fault:
    values: dict[str, object] = {
        "area": "small",
        "name": "too much is allowed",
        "file": "module.py",
        "line": "return size <= LIMIT",
        "becomes": "return size >= LIMIT",
        "tests": ("test_module.py",),
    }
    return Fault(**{**values, **changes})  # type: ignore[arg-type]


def fake_run(tests: Sequence[str], root: Path, *, python: str, limit_seconds: float) -> Run:
    """As if `test_module.py` found a bound that is turned round, `test_more.py` one that is off by one, and both an end
    that never comes."""
    text = (root / "module.py").read_text()
    if "while" in text:
        return Run(None, limit_seconds, 0, None, "")
    found = {"test_module.py": "size >= LIMIT", "test_more.py": "size < LIMIT", "test_broken.py": "LIMIT"}
    failed = next((test for test in tests if found.get(test, "nothing") in text), None)
    return Run(0 if failed is None else 1, 1.0, 1, failed and f"{failed}::test_it", f"1 failed\n{failed}")


def test_a_fault_is_found_by_the_test_that_fails_and_the_file_is_as_it_was(tree: CopiedTree) -> None:
    result = Trial(tree, tests_seconds=LONG_SECONDS).of(fault())
    assert (result.outcome, result.by) == (FOUND, "test_module.py::test_too_much_is_refused")
    assert (tree.root / "module.py").read_text() == MODULE


def test_stale_bytecode_hides_no_fault_of_the_same_size_in_the_same_second(tree: CopiedTree) -> None:
    trial = Trial(tree, tests_seconds=LONG_SECONDS)
    planted = fault(line="LIMIT = 10", becomes="LIMIT = 99", tests=("test_by_program.py",))
    harmless = fault(line="LIMIT = 10", becomes="LIMIT = 9 ", tests=("test_by_program.py",))
    assert [trial.of(each).outcome for each in (planted, harmless, planted)] == [FOUND, SURVIVED, FOUND]


def test_what_tests_miss_is_run_against_more(tree: CopiedTree) -> None:
    trial = Trial(tree, run=fake_run)
    assert trial.of(fault(becomes="return size < LIMIT")).outcome == SURVIVED
    result = trial.of(fault(becomes="return size < LIMIT", more=("test_more.py",)))
    assert (result.outcome, result.by) == (FOUND, "test_more.py::test_it")


def test_a_survivor_with_a_reason_is_equivalent(tree: CopiedTree) -> None:
    result = Trial(tree, run=fake_run).of(fault(becomes="return (size <= LIMIT)", equivalent="it is the same"))
    assert (result.outcome, result.by) == (EQUIVALENT, "it is the same")


def test_a_fault_with_which_the_tests_do_not_end_counts_as_found(tree: CopiedTree) -> None:
    result = Trial(tree, run=fake_run).of(fault(becomes="while size: pass"))
    assert (result.outcome, result.by) == (TIMED_OUT, "more than 60 s")


def test_tests_that_do_not_end_are_ended(tree: CopiedTree) -> None:
    run = run_tests(("test_endless.py",), tree.root, python=sys.executable, limit_seconds=0)
    assert run.status is None


def test_a_line_that_is_there_twice_or_not_at_all_is_refused(project: Path, tree: CopiedTree) -> None:
    with pytest.raises(NotApplicable, match="has 0 lines 'return None', not 1"):
        plant(fault(line="return None"), project)
    with pytest.raises(NotApplicable, match=r"there is no gone\.py"):
        plant(fault(file="gone.py"), project)
    (tree.root / "module.py").write_text(MODULE + MODULE)
    result = Trial(tree, run=fake_run).of(fault())
    assert (result.outcome, result.by) == (NOT_APPLICABLE, "module.py has 2 lines 'return size <= LIMIT', not 1")


def test_tests_that_are_not_in_the_tree_are_told(tree: CopiedTree) -> None:
    trial = Trial(tree, run=fake_run)
    result = trial.of(fault(tests=("test_moved.py", "test_module.py")))
    assert (result.outcome, result.missing) == (FOUND, ("test_moved.py",))
    result = trial.of(fault(tests=("test_moved.py",)))
    assert (result.outcome, result.missing) == (NOT_APPLICABLE, ("test_moved.py",))


@pytest.mark.parametrize(
    ("test", "run", "words"),
    [
        ("test_broken.py", fake_run, "without the fault, its tests fail: test_broken.py::test_it"),
        ("test_skipped.py", run_tests, "without the fault, none of its tests runs"),
        ("test_module.py::test_of_another_name", run_tests, "without the fault, its tests fail: not found"),
    ],
)
def test_tests_that_prove_nothing_without_the_fault_are_an_error(
    tree: CopiedTree, test: str, run: Callable[..., Run], words: str
) -> None:
    (tree.root / "test_broken.py").touch()
    result = Trial(tree, tests_seconds=LONG_SECONDS, run=run).of(fault(tests=(test,)))
    assert result.outcome == ERROR
    assert words in result.by


def test_tests_run_once_without_a_fault_for_all_that_name_them(tree: CopiedTree) -> None:
    runs: list[str] = []

    def counted(tests: Sequence[str], root: Path, **more: object) -> Run:
        runs.append((root / "module.py").read_text())
        return fake_run(tests, root, **more)  # type: ignore[arg-type]

    trial = Trial(tree, run=counted)
    trial.of(fault())
    trial.of(fault(becomes="return size < LIMIT"))
    assert len(runs) == 3
    assert runs.count(MODULE) == 1


def test_the_copy_has_what_git_knows_or_would_add_and_its_links(project: Path, tmp_path: Path) -> None:
    (project / "new.py").write_text("")
    (project / "test_endless.py").unlink()
    tree = CopiedTree(project, tmp_path / "copy")
    assert (tree.root / "new.py").exists()
    assert not (tree.root / "test_endless.py").exists()
    assert not (tree.root / "__pycache__/stale.pyc").exists()
    assert (tree.root / "link.py").readlink() == Path("module.py")


FAULTS = """\
["too much is allowed"]
file = "module.py"
line = "return size <= LIMIT"
becomes = "return size >= LIMIT"
tests = ["test_module.py"]

["the bound itself is refused"]
file = "module.py"
line = "return size <= LIMIT"
becomes = "return size < LIMIT"
tests = ["test_module.py"]
more = ["test_more.py"]
"""


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    (tmp_path / "faults/parts").mkdir(parents=True)
    (tmp_path / "faults/parts/small.toml").write_text(FAULTS)
    return tmp_path / "faults"


def test_areas_and_files_choose_faults(faults: Path) -> None:
    known = read_faults(faults)
    for word in ("parts", "parts/small", "module.py"):
        assert choose_faults(known, [word]) == known
    assert choose_faults(known, []) == known
    with pytest.raises(LookupError, match="no fault is in large; name a file, or one of: parts/small"):
        choose_faults(known, ["parts", "large"])


def test_a_run_goes_on_where_it_ended_for_the_same_tree_and_the_same_faults(
    project: Path, faults: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> list[bool]:
        """Whether each result is of an earlier run."""
        cache = tmp_path / "cache"
        assert main(["--tree", str(project), *words], faults_in=faults, cache=cache, run=fake_run) == 0
        return ["earlier" in line for line in capsys.readouterr().out.splitlines() if "parts/small:" in line]

    assert run() == [False, False]
    (results,) = (tmp_path / "cache/mutants").iterdir()
    results.write_text(results.read_text().splitlines()[0] + "\n")  # as if it had been ended after the first
    assert run() == [True, False]
    assert run() == [True, True]
    assert run("--again") == [False, False]
    (faults / "parts/small.toml").write_text(FAULTS.replace("bound itself", "bound"))
    assert run() == [True, False]
    (project / "module.py").write_text(MODULE + "\n")
    assert run() == [False, False]


def test_a_survivor_fails_the_run_and_is_shown_with_what_was_planted(
    project: Path, faults: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (faults / "parts/small.toml").write_text(FAULTS.replace('more = ["test_more.py"]\n', ""))
    cache = tmp_path / "cache"
    assert main(["--tree", str(project), "parts"], faults_in=faults, cache=cache, run=fake_run) == 1
    shown = capsys.readouterr().out
    assert "module.py: 'return size <= LIMIT' became 'return size < LIMIT'; tests: test_module.py" in shown
    assert "2 faults: 1 found, 1 survived\nsurvived:\n  parts/small: the bound itself is refused\n" in shown


def test_the_interpreter_of_a_checkout_is_what_its_setup_says(project: Path) -> None:
    assert python_of(project) == sys.executable
    (project / "bin").mkdir()
    (project / "bin/setup").write_text("#!/bin/sh\n[ $1 = --python ] && echo /venv\n")
    (project / "bin/setup").chmod(0o755)
    assert python_of(project) == "/venv/bin/python"
