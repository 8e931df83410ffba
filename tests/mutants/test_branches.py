"""Every branch that `make mutants BRANCHES=1` derives can be planted, has tests, and is named by the notes as it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.branches import PACKAGES, read_branches
from tests.mutants.fault import Fault, plant

CHECKOUT = Path(__file__).parents[2]
CODE = """\
def allow(name, groups):
    if name == "admin":  # whoever that is
        return True
    if (
        name is None
        or not groups
    ):
        raise ValueError
    for group in groups:
        if group == "admin":
            continue
        if group:
            name = group
    return False
"""


def a_checkout(folder: Path, code: str = CODE, test: str = "from provisioner.join import allow\n") -> Path:
    for path, text in (("provisioner/join/allow.py", code), ("tests/join/test_allow.py", test)):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(text)
    return folder


def notes(folder: Path, text: str = "") -> Path:
    path = folder / "notes.toml"
    path.write_text(text or "[tests]\n[equivalent]\n")
    return path


@pytest.fixture(scope="module")
def branches() -> tuple[Fault, ...]:
    """Of this checkout."""
    return read_branches(CHECKOUT)


def test_each_package_has_branches_and_each_branch_has_tests(branches: tuple[Fault, ...]) -> None:
    assert {package for package in PACKAGES if any(fault.area.startswith(package) for fault in branches)} == {*PACKAGES}
    assert sorted({fault.file for fault in branches if not fault.tests}) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_each_line_with_the_fault_can_be_read(branches: tuple[Fault, ...], package: str) -> None:
    for fault in branches:
        if fault.area.startswith(package):
            text = plant(fault, CHECKOUT)
            assert text != (CHECKOUT / fault.file).read_text(), fault.name
            ast.parse(text, fault.name)


def test_an_if_that_ends_or_goes_on_is_made_false_and_no_other(tmp_path: Path) -> None:
    faults = read_branches(a_checkout(tmp_path), notes(tmp_path))
    assert [(fault.line, fault.becomes) for fault in faults] == [
        ('if name == "admin":  # whoever that is', 'if (name == "admin") and False:  # whoever that is'),
        ("if (", "if False and ("),
        ('if group == "admin":', 'if (group == "admin") and False:'),
    ]
    assert {fault.tests for fault in faults} == {("tests/join/test_allow.py",)}


def test_a_test_that_imports_it_by_a_helper_comes_after_one_that_does_itself(tmp_path: Path) -> None:
    tree = a_checkout(tmp_path)
    (tree / "tests/join/world.py").write_text("from provisioner.join.allow import allow\n")
    (tree / "tests/join/test_world.py").write_text("from tests.join.world import allow\n")
    (fault, *_) = read_branches(tree, notes(tmp_path))
    assert (fault.tests, fault.more) == (("tests/join/test_allow.py",), ("tests/join/test_world.py",))


@pytest.mark.parametrize(
    "text",
    [
        '[tests]\n"provisioner/join/gone.py" = ["tests/join/test_allow.py"]\n[equivalent]\n',
        '[tests]\n[equivalent."provisioner/join/allow.py"]\n"allow.allow: name == \'gone\'" = "it is gone"\n',
    ],
)
def test_notes_on_what_is_not_there_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(LookupError, match="gone"):
        read_branches(a_checkout(tmp_path), notes(tmp_path, text))


def test_a_condition_of_several_lines_that_cannot_be_made_false_is_refused(tmp_path: Path) -> None:
    code = "def allow(name):\n    if not name or name != (\n        1\n    ):\n        return\n"
    with pytest.raises(ValueError, match="parentheses"):
        read_branches(a_checkout(tmp_path, code), notes(tmp_path))
