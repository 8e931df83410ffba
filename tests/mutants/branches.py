"""A fault for every branch that ends what a function does: an `if` that raises, returns or goes on never comes true.

Derived from the source, so that a new branch has one at once. `branches.toml` names the tests of modules that no test
file imports, and the branches that no test can notice, with the reason.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.mutants.fault import Fault

NOTES: Final = Path(__file__).parent / "branches.toml"
PACKAGES: Final = ("join", "power", "maintenance", "rollout", "network/control", "image/trust")
"""Where a branch decides what a machine, a job or a tenant may."""


def read_branches(tree: Path, notes: Path = NOTES) -> tuple[Fault, ...]:
    """Of all `PACKAGES` in a checkout, file by file. Their area is the folder below `provisioner`."""
    known = tomllib.loads(notes.read_text())
    importers = _importers(tree / "tests")
    faults: list[Fault] = []
    for package in PACKAGES:
        for path in sorted((tree / "provisioner" / package).rglob("*.py")):
            faults += _of_file(path, path.relative_to(tree).as_posix(), known, importers)
    return tuple(faults)


def _of_file(
    path: Path, name: str, known: Mapping[str, Any], importers: Mapping[str, tuple[str, ...]]
) -> Iterator[Fault]:
    text = path.read_text()
    lines = text.splitlines()
    bare = [line.strip() for line in lines]
    area = path.parent.relative_to(path.parents[len(Path(name).parts) - 2]).as_posix()
    package = next(each for each in PACKAGES if f"{area}/".startswith(f"{each}/"))
    tests = known["tests"].get(name) or importers.get(name.removesuffix(".py").replace("/", "."))
    reasons = known["equivalent"].get(name, {})
    for scope, branch in _branches(ast.parse(text), ""):
        line = bare[branch.lineno - 1]
        condition = f"{scope}: {ast.unparse(branch.test)}"
        yield Fault(
            area,
            f"{path.stem}.{condition}",
            name,
            line,
            _never(lines[branch.lineno - 1], branch).strip(),
            tests or (f"tests/{package}",),
            (f"tests/{package}",) if tests else (),
            reasons.get(condition),
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
    """The first line of a branch whose condition never comes true."""
    test = branch.test
    if test.end_lineno != branch.lineno:
        return line.replace("if ", "if False and ", 1)
    before, condition = line[: test.col_offset], line[test.col_offset : test.end_col_offset]
    return f"{before}False and ({condition}){line[test.end_col_offset :]}"


def _importers(tests: Path) -> dict[str, tuple[str, ...]]:
    """Of each module, the test files of its package that import it."""
    found: dict[str, list[str]] = {}
    for path in sorted(tests.rglob("test_*.py")):
        for module in set(re.findall(r"^from (provisioner[\w.]*) import ", path.read_text(), re.MULTILINE)):
            found.setdefault(module, []).append(path.relative_to(tests.parent).as_posix())
    return {module: tuple(own) for module, names in found.items() if (own := _own(module, names))}


def _own(module: str, names: list[str]) -> list[str]:
    folder = f"tests/{module.removeprefix('provisioner.').partition('.')[0]}/"
    return [name for name in names if name.startswith(folder)]
