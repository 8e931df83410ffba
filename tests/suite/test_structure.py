"""What a newcomer relies on: a public class name means one thing, and of two folders one knows the other."""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

from tests.changed.graph import module_name

ROOT: Final = Path(__file__).parents[2]
TREES: Final = {path: ast.parse(path.read_text()) for path in sorted((ROOT / "provisioner").rglob("*.py"))}
MODULES: Final = {module_name(path.relative_to(ROOT).as_posix()): path for path in TREES}


def imported(tree: ast.Module) -> Iterator[Path]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                found = MODULES.get(f"{node.module}.{alias.name}") or MODULES.get(node.module)
                if found is not None:
                    yield found


def folder(path: Path) -> str:
    return path.parent.relative_to(ROOT / "provisioner").as_posix()


def test_a_public_class_name_exists_once() -> None:
    places = defaultdict(list)
    for name, path in MODULES.items():
        for node in TREES[path].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    assert len(places) > 1000
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_of_two_folders_one_imports_the_other_and_not_both() -> None:
    edges = {(folder(path), folder(other)) for path, tree in TREES.items() for other in imported(tree)}
    assert len(edges) > 100
    both = {(one, other) for one, other in edges if one < other and (other, one) in edges}
    assert both == set()


def test_a_part_that_others_do_without_needs_no_package_that_they_do_not_need() -> None:
    """Else that package would be an extra of pip, which who leaves the part out need not install."""
    parts = ("network/infiniband", "network/reflector", "network/evpn", "image", "web")
    needs = {
        is_part: {name.partition(".")[0] for path, tree in TREES.items() if folder(path).startswith(parts) == is_part
                  for name in third_party(tree)}
        for is_part in (True, False)
    }  # fmt: skip
    assert needs[True] - needs[False] - sys.stdlib_module_names == {"markupsafe"}, "comes with jinja2"


def third_party(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_module_of_the_package_imports_what_is_not_installed_with_it() -> None:
    names = set(chain.from_iterable(third_party(tree) for tree in TREES.values()))
    assert "provisioner.cli.main" in names
    assert {name for name in names if name.partition(".")[0] in ("lab", "artefacts", "tests", "website")} == set()
