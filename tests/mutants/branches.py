"""The condition of each `if` that raises, returns or continues is made false: a fault for every branch of its kind.

Derived from the source, so that a new branch has one at once. Its tests are those of its package that are nearest to
its file by imports, and then the next. `branches.toml` names others, and the branches that no test can notice, with the
reason.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.changed.graph import read_graph
from tests.mutants.fault import Fault

NOTES: Final = Path(__file__).parent / "branches.toml"
PACKAGES: Final = ("join", "power", "maintenance", "rollout", "network/control", "image/trust")
"""Where a branch decides what a machine, a job or a tenant may do."""
_TESTS: Final = tuple(f"tests/{package}/" for package in PACKAGES)


def read_branches(tree: Path, notes: Path = NOTES) -> tuple[Fault, ...]:
    """Of all `PACKAGES` in a checkout, file by file. Their area is the folder below `provisioner`.

    Raises: LookupError if the notes name a file or a branch that is not there.
    """
    known = tomllib.loads(notes.read_text())
    hops = _hops(tree)
    faults: list[Fault] = []
    for package in PACKAGES:
        for path in sorted((tree / "provisioner" / package).rglob("*.py")):
            faults += _of_file(tree, path.relative_to(tree), package, known, hops)
    names = {(fault.file, fault.name) for fault in faults}
    noted = {(file, name) for file, reasons in known["equivalent"].items() for name in reasons}
    if unknown := [*sorted(noted - names), *sorted(known["tests"].keys() - {file for file, _ in names})]:
        raise LookupError(f"{notes.name} names what is not there: {unknown}")
    return tuple(faults)


def _of_file(
    tree: Path, path: Path, package: str, known: Mapping[str, Any], hops: Mapping[str, Mapping[str, int]]
) -> Iterator[Fault]:
    text, name = (tree / path).read_text(), path.as_posix()
    lines = text.splitlines()
    bare = [line.strip() for line in lines]
    far = {test: far for test, far in hops.get(name, {}).items() if test.startswith(f"tests/{package}/")}
    nearest = min(far.values(), default=0)
    tests = tuple(known["tests"].get(name, [test for test in far if far[test] == nearest]))
    reasons = known["equivalent"].get(name, {})
    for scope, branch in _branches(ast.parse(text), ""):
        line, title = bare[branch.lineno - 1], f"{path.stem}.{scope}: {ast.unparse(branch.test)}"
        yield Fault(
            path.parent.relative_to("provisioner").as_posix(),
            title,
            name,
            line,
            _never(lines[branch.lineno - 1], branch).strip(),
            tests,
            tuple(test for test in far if far[test] == nearest + 1 and test not in tests),
            reasons.get(title),
            occurrence=bare[: branch.lineno].count(line) - 1,
        )


def _branches(node: ast.AST, scope: str) -> Iterator[tuple[str, ast.If]]:
    for child in ast.iter_child_nodes(node):
        within = scope
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            within = f"{scope}.{child.name}".lstrip(".")
        elif isinstance(child, ast.If) and isinstance(child.body[-1], ast.Raise | ast.Return | ast.Continue):
            yield scope, child
        yield from _branches(child, within)


def _never(line: str, branch: ast.If) -> str:
    """The first line of a branch whose condition is false once it was evaluated, where it ends in that line.

    Raises: ValueError for a condition of several lines whose `or` is not in parentheses.
    """
    test = branch.test
    if test.end_lineno == branch.lineno:
        before, condition = line[: test.col_offset], line[test.col_offset : test.end_col_offset]
        return f"{before}({condition}) and False{line[test.end_col_offset :]}"
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) and not line.rstrip().endswith("if ("):
        raise ValueError(f"{line.strip()!r} goes on in another line: put its condition into parentheses")
    return line.replace("if ", "if False and ", 1)


def _hops(tree: Path) -> dict[str, dict[str, int]]:
    """Of each file of the product, how far it is from each test of `PACKAGES` that reaches it.

    Histories (chaos) are left out: they take minutes.
    """
    files = (path for root in ("provisioner", "tests") for path in (tree / root).rglob("*.py"))
    paths = sorted(path.relative_to(tree).as_posix() for path in files)
    graph = read_graph(tree, paths)
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for test in paths:
        if not test.startswith(_TESTS) or not Path(test).name.startswith("test_") or "/chaos/" in test:
            continue
        hops: dict[str, int] = {}
        for name, before in graph.reached_from(test).items():
            hops[name] = hops.get(before, -1) + 1
            file = found[graph.nodes[name].path]
            file[test] = min(hops[name], file.get(test, hops[name]))
    return found
