"""The condition of each `if` that raises, returns or continues is made false: a fault for every branch of its kind.

Derived from the source, so that a new branch has one at once. Its tests are those of its package that import its
module; if there are none, those whose helpers do, or else those of the modules that import it. `branches.toml` names
others, and the branches that no test can notice, with the reason.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.mutants.fault import Fault

NOTES: Final = Path(__file__).parent / "branches.toml"
PACKAGES: Final = ("join", "power", "maintenance", "rollout", "network/control", "image/trust")
"""Where a branch decides what a machine, a job or a tenant may do."""
_IMPORT: Final = re.compile(r"^ *(?:from|import) ((?:provisioner|tests)[\w.]*)(?: import ([\w, ]+))?", re.MULTILINE)


@dataclass(frozen=True)
class Reached:
    """Of each module: test files that import it, those whose helpers do, and the product's modules that import it."""

    directly: defaultdict[str, list[str]]
    by_helpers: defaultdict[str, list[str]]
    users: defaultdict[str, list[str]]


def read_branches(tree: Path, notes: Path = NOTES) -> tuple[Fault, ...]:
    """Of all `PACKAGES` in a checkout, file by file. Their area is the folder below `provisioner`.

    Raises: LookupError if the notes name a file or a branch that is not there.
    """
    known = tomllib.loads(notes.read_text())
    reached = _reached(tree)
    faults: list[Fault] = []
    for package in PACKAGES:
        for path in sorted((tree / "provisioner" / package).rglob("*.py")):
            faults += _of_file(tree, path.relative_to(tree), package, known, reached)
    names = {(fault.file, fault.name) for fault in faults}
    noted = {(file, name) for file, reasons in known["equivalent"].items() for name in reasons}
    if unknown := [*sorted(noted - names), *sorted(known["tests"].keys() - {file for file, _ in names})]:
        raise LookupError(f"{notes.name} names what is not there: {unknown}")
    return tuple(faults)


def _of_file(tree: Path, path: Path, package: str, known: Mapping[str, Any], reached: Reached) -> Iterator[Fault]:
    text, name = (tree / path).read_text(), path.as_posix()
    lines = text.splitlines()
    bare = [line.strip() for line in lines]
    direct, others = _tests_of(name.removesuffix(".py").replace("/", "."), f"tests/{package}/", reached)
    tests = tuple(known["tests"].get(name, direct or others))
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
            tuple(test for test in others if test not in tests),
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


def _tests_of(module: str, folder: str, reached: Reached) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tests in `folder` that import the module, and those whose helpers do; else those of the modules that use it.

    Both are empty if no test reaches it.
    """
    asked, seen = [module], {module}
    while asked:
        near, far = (
            tuple(dict.fromkeys(test for each in asked for test in tests[each] if test.startswith(folder)))
            for tests in (reached.directly, reached.by_helpers)
        )
        if near or far:
            return near, far
        asked = [user for each in asked for user in reached.users[each] if user not in seen]
        seen |= {*asked}
    return (), ()


def _read(tree: Path, root: str) -> dict[str, set[str]]:
    """Of each module below `root` what it imports."""
    paths = sorted((tree / root).rglob("*.py"))
    return {p.relative_to(tree).with_suffix("").as_posix().replace("/", "."): _imports(p.read_text()) for p in paths}


def _reached(tree: Path) -> Reached:
    """Histories (chaos) are left out: they take minutes."""
    reached, imports = Reached(defaultdict(list), defaultdict(list), defaultdict(list)), _read(tree, "tests")
    for user, used in _read(tree, "provisioner").items():
        for module in used:
            reached.users[module].append(user)
    for test, own in imports.items():
        if "test_" not in test.rpartition(".")[2] or ".chaos." in test:
            continue
        seen, to_do = set(own), [each for each in own if each in imports]
        for helper in to_do:  # grows
            new = imports[helper] - seen
            seen |= new
            to_do += [each for each in new if each in imports]
        for module in sorted(seen):
            tests = reached.directly if module in own else reached.by_helpers
            tests[module].append(f"{test.replace('.', '/')}.py")
    return reached


def _imports(text: str) -> set[str]:
    found = set()
    for module, names in _IMPORT.findall(text):
        found |= {module, *(f"{module}.{name.strip()}" for name in names.split(",") if name)}
    return found
