"""What counts as changed, in a repository made here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.changed.__main__ import main
from tests.changed.git import GitFailed, existing_files, read_changes

pytestmark = pytest.mark.programs


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """On a branch that left `main` a commit ago."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "a contributor")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "contributor@example.com")
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for name in ("kept", "edited", "staged", "deleted", "renamed", "on_main"):
        write(tmp_path / f"tests/test_{name}.py", name)
    write(tmp_path / ".gitignore", "ignored\n")
    commit(tmp_path)
    git(tmp_path, "switch", "--quiet", "--create", "branch")
    return tmp_path


def git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(repository), *arguments], check=True, capture_output=True)


def commit(repository: Path) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=A change")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def test_committed_staged_unstaged_and_untracked_files_count_and_those_of_main_do_not(repository: Path) -> None:
    tests = repository / "tests"
    write(tests / "test_committed.py", "new")
    commit(repository)
    git(repository, "switch", "--quiet", "main")
    write(tests / "test_on_main.py", "later")
    commit(repository)
    git(repository, "switch", "--quiet", "branch")
    write(tests / "test_edited.py", "edited again")
    write(tests / "test_staged.py", "staged again")
    git(repository, "add", "tests/test_staged.py")
    (tests / "test_deleted.py").unlink()
    git(repository, "mv", "tests/test_renamed.py", "tests/test_new_name.py")
    write(tests / "test_ünträcked.py", "new")
    write(repository / "ignored", "not a change")
    changes = read_changes(repository)
    assert changes.since == "main"
    assert [path.removeprefix("tests/test_") for path in changes.paths] == [
        "committed.py", "deleted.py", "edited.py", "new_name.py", "renamed.py", "staged.py", "ünträcked.py"
    ]  # fmt: skip
    assert changes.deleted == ["tests/test_deleted.py", "tests/test_renamed.py"]
    assert set(changes.paths) - set(existing_files(repository)) == set(changes.deleted)


def test_on_main_uncommitted_changes_count_and_what_origin_lacks(repository: Path) -> None:
    git(repository, "switch", "--quiet", "main")
    write(repository / "tests/test_edited.py", "edited again")
    assert (read_changes(repository).since, read_changes(repository).paths) == ("HEAD", ["tests/test_edited.py"])
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    write(repository / "tests/test_kept.py", "edited, too")
    git(repository, "commit", "--quiet", "--message=A change", "tests/test_kept.py")
    changes = read_changes(repository)
    assert (changes.since, changes.paths) == ("origin/main", ["tests/test_edited.py", "tests/test_kept.py"])


def test_another_base_can_be_named(repository: Path) -> None:
    git(repository, "branch", "other")
    write(repository / "tests/test_edited.py", "edited again")
    commit(repository)
    assert read_changes(repository, "other").paths == ["tests/test_edited.py"]
    assert read_changes(repository, "branch").paths == []


def test_a_base_that_is_missing_is_an_error_with_its_remedy(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(GitFailed, match="has no branch gone: fetch it, or name another: make test-changed BASE="):
        read_changes(repository, "gone")
    git(repository, "switch", "--quiet", "--orphan", "unrelated")
    git(repository, "commit", "--quiet", "--allow-empty", "--message=Another beginning")
    with pytest.raises(GitFailed, match="no common ancestor"):
        read_changes(repository)


def test_a_folder_without_history_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GitFailed, match="not a git repository"):
        read_changes(tmp_path)


def never(tests: object) -> int:
    raise AssertionError(f"ran {tests}")


def test_without_a_change_no_test_runs(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(never, [], root=repository) == 0
    assert capsys.readouterr().out == "No file differs from main: no test to run.\n"


def test_what_is_chosen_is_printed_with_the_reason(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository / "tests/test_edited.py", "import tests.test_kept")
    git(repository, "rm", "--quiet", "tests/test_deleted.py")
    assert main(never, ["--list"], root=repository) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2 changed files since main: 1 of 5 test files depend on them.",
        "  tests/test_edited.py: changed",
    ]


def test_a_change_that_no_test_depends_on_is_no_failure(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(repository / "LICENSE", "another")
    assert main(never, [], root=repository) == 0
    assert capsys.readouterr().out == "1 changed file since main: no test depends on it.\n"


def test_the_chosen_files_run_and_their_status_is_returned(repository: Path) -> None:
    write(repository / "tests/test_edited.py", "import tests.test_kept")
    write(repository / "tests/test_kept.py", "edited, too")
    ran: list[str] = []
    assert main(lambda tests: ran.extend(tests) or 3, [], root=repository) == 3
    assert ran == ["tests/test_edited.py", "tests/test_kept.py"]
