"""Goals, conditions and tables: what is missed says so, what is measured badly is not recorded, what is old says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.benchmarks import record
from tests.benchmarks.__main__ import NAMES, with_age
from tests.benchmarks.record import Goal, begin, goals_table, number
from tests.tools import missing

RATIO = Goal("seconds, to the bound", 1.5)
RATE = Goal("proofs a second", 500, at_least=True)

pytestmark = pytest.mark.programs  # git


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "git", lambda *_: "")
    return tmp_path


@pytest.fixture
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.4, 0.0, 0.0))


@pytest.mark.usefixtures("idle_machine")
def test_a_missed_goal_stands_in_the_table_and_fails_the_run(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = [RATIO.check("10,000 servers", [1.6, 1.7, 1.4]), RATIO.check("100 servers", [1.5])]
    assert begin("scale").finish("## A fleet\n", checks, 3) == 1
    table = (results / "scale.md").read_text()
    assert "| seconds, to the bound | ≤ 1.5 | 10,000 servers | 1.6 (1.4 to 1.7) | **MISSED** |" in table
    assert "| seconds, to the bound | ≤ 1.5 | 100 servers | 1.5 | met |" in table
    said = capsys.readouterr()
    assert "MISSED: seconds, to the bound, 10,000 servers: 1.6 (1.4 to 1.7), goal ≤ 1.5" in said.err
    assert "100 servers: 1.5, goal" not in said.err


@pytest.mark.usefixtures("idle_machine", "results")
def test_a_run_that_meets_its_goals_ends_well() -> None:
    checks = [RATIO.check("all", [1.0, 1.1, 1.2]), RATE.check("P-256", [500])]
    assert begin("scale").finish("## A fleet", checks, 3) == 0


@pytest.mark.parametrize(("value", "is_met"), [(499.9, False), (500.0, True), (501.0, True)])
def test_a_goal_may_be_a_least(value: float, is_met: bool) -> None:
    assert RATE.check("P-256", [value]).is_met is is_met
    assert str(RATE) == "≥ 500"


def test_a_value_beyond_its_limit_never_reads_as_the_limit() -> None:
    assert "| 1.052 | **MISSED** |" in goals_table([Goal("ratio", 1.05).check("all", [1.052])])
    assert number(145_638) == "145,638"


def test_a_benchmark_without_goals_says_so() -> None:
    assert goals_table([]) == "No goal is set for this benchmark."


@pytest.mark.usefixtures("idle_machine")
def test_fewer_than_three_repetitions_are_not_recorded(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begin("scale").finish("## A fleet", [], 2)
    assert list(results.iterdir()) == []
    assert "not recorded: 2 repetitions" in capsys.readouterr().err


def test_the_table_says_how_busy_the_machine_was(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE", "1")
    loads = iter([(2.5, 0.0, 0.0), (3.5, 0.0, 0.0)])
    monkeypatch.setattr("os.getloadavg", lambda: next(loads))
    ticks = iter([(1000, 10), (2000, 60)])
    monkeypatch.setattr(record, "processor_ticks", lambda: next(ticks))
    begin("scale").finish("## A fleet", [], 3)
    table = (results / "scale.md").read_text()
    assert "3 repetitions. Load average of the minute before: 2.5, of the last minute: 3.5; 5.0 % of the" in table
    assert "**Above 1: measured with FORCE=1.**" in table


def test_stolen_time_is_the_eighth_figure_of_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: "cpu  10 20 30 400 5 6 7 80 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
    assert record.processor_ticks() == (558, 80)


# What is recorded


RECORDED = sorted((record.HERE / "results").glob("*.md"))


def test_there_are_records_of_benchmarks_alone() -> None:
    assert {path.stem for path in RECORDED} <= set(NAMES)
    assert RECORDED


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_list_of_all_figures_has_each_record_as_it_is(path: Path) -> None:
    assert path.read_text() in (record.HERE / "RESULTS.md").read_text()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_record_is_of_a_commit_of_this_repository(path: Path) -> None:
    if record.git("rev-parse", "--is-shallow-repository") != "false":
        missing("the history of the repository", "clone it as a whole")
    assert with_age(path.name, path.read_text())


def test_a_table_gets_its_age_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = make_repository(tmp_path, 3)
    monkeypatch.setattr(record, "HERE", tmp_path)
    table = f"## A fleet\n\nMeasured 2026-01-02 at commit {commits[0][:12]}; 2 cores.\n"
    aged = with_age("scale.md", table)
    assert "**Age:** 2 commits on " in aged
    assert with_age("scale.md", aged) == aged


def test_a_table_whose_commit_is_not_in_the_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_repository(tmp_path, 1)
    monkeypatch.setattr(record, "HERE", tmp_path)
    with pytest.raises(SystemExit, match=r"results/scale\.md names no commit of this repository"):
        with_age("scale.md", "## A fleet\n\nMeasured 2026-01-02 at commit 0123456789ab; 2 cores.\n")


def make_repository(folder: Path, count: int) -> list[str]:
    """Commits, the first one first."""
    author = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    run = [*("git", "-C", str(folder)), *author]
    subprocess.run([*run, "init", "-q"], check=True)
    for number_ in range(count):
        subprocess.run([*run, "commit", "-q", "--allow-empty", "-m", str(number_)], check=True)
    said = subprocess.run([*run, "rev-list", "--reverse", "HEAD"], check=True, capture_output=True, text=True).stdout
    return said.split()
