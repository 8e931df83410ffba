"""What holds for all tests is kept to: a run of pytest in a run of pytest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[1]
SKIPPED = {
    "by_a_call": "def test_it() -> None:\n    pytest.skip('no such part')\n",
    "by_a_mark": "@pytest.mark.skipif(True, reason='no such part')\ndef test_it() -> None: ...\n",
    "by_an_import": "pytest.importorskip('no_such_part')\n",
    "by_a_fixture": "@pytest.fixture\ndef part() -> None:\n    pytest.skip('no such part')\n"
    "def test_it(part: None) -> None: ...\n",
    "by_our_helper": "from tests.tools import missing\ndef test_it() -> None:\n    missing('no such part', 'get it')\n",
}
LOGGED = """
import structlog
from structlog.testing import capture_logs
from click.testing import CliRunner
from provisioner.cli.main import configure_logging

log = structlog.get_logger()

def test_a_command_configures_logging_and_logs() -> None:
    configure_logging(json=True, verbose=False)
    log.info("to a file that is closed soon")

def test_another_reads_what_is_logged() -> None:
    with capture_logs() as lines:
        log.info("heard")
    assert [line["event"] for line in lines] == ["heard"]
"""

PROPERTY = """
from hypothesis import given, settings, strategies as st

@settings(max_examples=20)
@given(drawn=st.integers())
def test_it(drawn: int) -> None:
    with open("drawn", "a") as file:
        print(drawn, file=file)
"""
STARTED = {
    "subprocess": "subprocess.run(['true', 'or', 'false'])",
    "system": "os.system('true or false')",
    "spawn": "os.posix_spawn('/bin/true', ['true', 'or', 'false'], os.environ)",
    "fork": "os.fork() or os._exit(0)",
    "multiprocessing": "multiprocessing.get_context('fork').Process().start()",
    "caught": "try: subprocess.run(['true', 'or', 'false'])\n    except BaseException: pass",
    "thread": "it = threading.Thread(target=os.system, args=['true or false'])\n    it.start()\n    it.join()",
}
"""How a test starts a program."""
STARTS = """
import multiprocessing, os, subprocess, threading, pytest

{mark}
def test_it() -> None:
    {statement}
"""
BESIDE = """
import queue, subprocess, threading, pytest

def restart(when: queue.Queue, done: queue.Queue) -> None:
    when.get()
    done.put(subprocess.run(["true"]).returncode)

@pytest.fixture(scope="module")
def service():
    when, done = queue.Queue(), queue.Queue()
    threading.Thread(target=restart, args=(when, done)).start()
    return when, done

@pytest.mark.programs
def test_of_the_service(service) -> None: ...

def test_beside_it(service) -> None:
    when, done = service
    when.put(None)
    assert done.get() == 0
"""


def run_pytest(folder: Path, source: str, ci: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    environment = os.environ | {"CI": ci, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, f"--rootdir={folder}", *options, folder],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("how", SKIPPED)
def test_a_skip_is_a_failure_in_ci(tmp_path: Path, how: str) -> None:
    ran = run_pytest(tmp_path, f"import pytest\n{SKIPPED[how]}", ci="true")
    assert ran.returncode != 0, ran.stdout
    assert "no such part" in ran.stdout or "no_such_part" in ran.stdout


def test_a_skip_is_visible_elsewhere(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, f"import pytest\n{SKIPPED['by_our_helper']}", ci="")
    assert (ran.returncode, "1 skipped" in ran.stdout) == (0, True), ran.stdout


def test_no_test_configures_the_logging_of_another(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, LOGGED, ci="true")
    assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize(("options", "are_the_same"), [((), True), (("--hypothesis-profile=random",), False)])
def test_properties_are_tried_with_the_same_examples_each_time_unless_chance_is_asked_for(
    tmp_path: Path, options: tuple[str, ...], are_the_same: bool
) -> None:
    drawn = tmp_path / "drawn"

    def draw() -> str:
        drawn.unlink(missing_ok=True)
        ran = run_pytest(tmp_path, PROPERTY, "true", *options)
        assert ran.returncode == 0, ran.stdout
        return drawn.read_text()

    assert (draw() == draw()) == are_the_same
    assert not (tmp_path / ".hypothesis/examples").exists(), "no example is kept for the next run"


@pytest.mark.parametrize("how", STARTED)
def test_a_fast_test_that_starts_a_program_fails_and_the_message_names_program_and_remedy(
    tmp_path: Path, how: str
) -> None:
    source = STARTS.format(mark="", statement=STARTED[how])
    ran = run_pytest(tmp_path, source, ci="")
    started = "a fork of this process" if how in ("fork", "multiprocessing") else "true or false"
    assert f"a test marked `fast` started a program: {started}; mark it: `pytestmark = " in ran.stdout
    assert (ran.returncode, "1 failed" in ran.stdout, "error" in ran.stdout.splitlines()[-1]) == (1, True, False)


def test_a_test_marked_programs_may_start_one(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, STARTS.format(mark="@pytest.mark.programs", statement=STARTED["subprocess"]), ci="")
    assert ran.returncode == 0, ran.stdout


def test_a_program_of_an_older_thread_is_no_fault_of_a_fast_test(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, BESIDE, ci="")
    assert (ran.returncode, "2 passed" in ran.stdout) == (0, True), ran.stdout
