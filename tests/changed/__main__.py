"""`make test-changed`: runs the tests that the changes since the base branch affect, and says why each was chosen."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.changed.choose import choose, is_test
from tests.changed.git import GitFailed, existing_files, read_changes
from tests.changed.graph import read_graph

ROOT: Final = Path(__file__).parents[2]
SHOWN: Final = 20
NO_TESTS_RAN: Final = 5
"""pytest's exit status if it finds no test."""


def main(run: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Exit status: that of `run`, which runs the chosen test files."""
    parser = argparse.ArgumentParser(prog="make test-changed", description=__doc__)
    parser.add_argument("--base", default="main", help="the branch to compare with")
    parser.add_argument("--list", action="store_true", help="choose, and run nothing")
    options = parser.parse_args(arguments)
    try:
        changes = read_changes(root, options.base)
        files = existing_files(root)
    except GitFailed as error:
        print(f"test-changed: {error}", file=sys.stderr)
        return 1
    if not changes.paths:
        print(f"No file differs from {changes.since}: no test to run.")
        return 0
    chosen = choose(read_graph(root, files, changes.deleted), changes.paths)
    print("\n".join(describe(chosen, sum(map(is_test, files)), len(changes.paths), changes.since)), flush=True)
    return 0 if options.list or not chosen else run(sorted(chosen))


def describe(chosen: Mapping[str, str], of: int, changed: int, since: str) -> list[str]:
    """What was chosen and why: a headline, and at most `SHOWN` lines."""
    files, them = (f"{changed} changed files", "them") if changed != 1 else ("1 changed file", "it")
    if not chosen:
        return [f"{files} since {since}: no test depends on {them}."]
    if len(set(chosen.values())) == 1 and len(chosen) == of:
        return [f"{files} since {since}: running all {of} test files, because {next(iter(chosen.values()))}."]
    lines = [f"{files} since {since}: {len(chosen)} of {of} test files depend on {them}."]
    lines += [f"  {test}: {reason}" for test, reason in list(chosen.items())[:SHOWN]]
    return lines + ([f"  and {len(chosen) - SHOWN} more"] if len(chosen) > SHOWN else [])


def run(tests: Sequence[str]) -> int:
    """Run pytest; install what these tests need, as `make test` does, if some of them start programs."""
    pytest = [sys.executable, "-m", "pytest"]
    collected = subprocess.run(
        [*pytest, "-q", "--collect-only", "-m", "not fast and not long", *tests], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    if collected.returncode != NO_TESTS_RAN:
        if os.geteuid() == 0:
            subprocess.run(["bin/setup", "--tests"], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
            subprocess.run([sys.executable, "-m", "tests.prepare"], cwd=ROOT, check=True)
        else:
            print("Some of these tests need root; as another user they are skipped.", flush=True)
    status = subprocess.run([sys.executable, "-m", "tests.suite", *tests], cwd=ROOT).returncode
    if status == NO_TESTS_RAN:
        print("All of these tests are marked `long`: `make test-long` runs them.")
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main(run))
