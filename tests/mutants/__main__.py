"""`make mutants [FAULTS="join power"] [BRANCHES=1]`: whether the tests find known faults, planted one at a time."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.branches import read_branches
from tests.mutants.copied_tree import CopiedTree, commit_of
from tests.mutants.fault import FAULTS, Fault, choose_faults, read_faults
from tests.mutants.results import GOOD, Result, Results
from tests.mutants.run import TESTS_SECONDS, Run, run_tests
from tests.mutants.trial import Trial
from tests.tools import CACHE

HERE: Final = Path(__file__).resolve().parents[2]


def main(
    words: Sequence[str], *, faults_in: Path = FAULTS, cache: Path = CACHE, run: Callable[..., Run] = run_tests
) -> int:
    """Exit status: 0 if the tests find every fault that is not marked `equivalent`; else 1."""
    options = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    options.add_argument("--tree", type=Path, default=HERE, help="the checkout that is tried; default: this one")
    options.add_argument("--again", action="store_true", help="forget the results of earlier runs on the same tree")
    options.add_argument(
        "--seconds",
        type=float,
        default=TESTS_SECONDS,
        help=f"how long a fault's tests may take, {TESTS_SECONDS} if not given; a machine that is busy needs more",
    )
    options.add_argument(
        "--branches", action="store_true", help="the faults of branches.py: every branch that ends a function"
    )
    options.add_argument("faults", nargs="*", help="areas or files; all, if none is named")
    given = options.parse_args(words)
    try:
        known = read_branches(given.tree) if given.branches else read_faults(faults_in)
        faults = choose_faults(known, given.faults)
    except LookupError as error:
        options.error(str(error))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        python = python_of(given.tree)
        tree = CopiedTree(given.tree, Path(folder), python=python)
        results = Results(cache / "mutants" / f"{commit_of(given.tree)}-{tree.digest[:12]}.jsonl")
        if given.again:
            results.forget()
        print(f"{len(faults)} faults; results: {results.path}", flush=True)
        trial = Trial(tree, python=python, tests_seconds=given.seconds, run=run)
        outcomes = [_result_of(fault, results, trial) for fault in faults]
    return summarize(faults, outcomes)


def python_of(tree: Path) -> str:
    """The interpreter with what that checkout requires."""
    if (tree / "bin/setup").exists():
        said = subprocess.run([tree / "bin/setup", "--python"], capture_output=True, text=True, check=True)
        return f"{said.stdout.strip()}/bin/python"
    return sys.executable


def _result_of(fault: Fault, results: Results, trial: Trial) -> Result:
    known = results.of(fault)
    result = known or trial.of(fault)
    if known is None:
        results.add(fault, result)
    print(render(fault, result, earlier=known is not None), flush=True)
    return result


def render(fault: Fault, result: Result, *, earlier: bool = False) -> str:
    """One line; of a fault that was not found also what was planted."""
    seconds = "earlier" if earlier else f"{result.seconds:.1f} s"
    line = f"{result.outcome:14} {seconds:>8}  {fault.area}: {fault.name}{f' ({result.by})' if result.by else ''}"
    if result.missing:
        line += f"\n{'':25}not in this tree: {', '.join(result.missing)}"
    if result.outcome not in GOOD:
        tests = " ".join(fault.tests + fault.more)
        line += f"\n{'':25}{fault.file}: {fault.line!r} became {fault.becomes!r}; tests: {tests}"
    return line


def summarize(faults: Sequence[Fault], results: Sequence[Result]) -> int:
    """Print how many had which outcome, and name those that matter. Returns: exit status."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for fault, result in zip(faults, results, strict=True):
        names[result.outcome].append(f"{fault.area}: {fault.name}")
    counts = ", ".join(f"{len(found)} {outcome}" for outcome, found in names.items())
    print(f"\n{len(faults)} faults: {counts}")
    for outcome in sorted(names.keys() - GOOD):
        print("\n  ".join([f"{outcome}:", *names[outcome]]))
    if missing := sorted({test for result in results for test in result.missing}):
        print("\n  ".join(["not in this tree:", *missing]))
    return 0 if names.keys() <= GOOD else 1


if __name__ == "__main__":
    # Both signals must end the running tests too. A job in the background starts with SIGINT ignored.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
