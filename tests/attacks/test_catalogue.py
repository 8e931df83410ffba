"""The catalogue of attacks is whole: each row names tests that exist, each test of an attack is in a row, and each
defence that is taken away has its twin."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.attacks.__main__ import Results, render_table
from tests.attacks.catalogue.families import FAMILIES
from tests.attacks.catalogue.honest import HONEST
from tests.attacks.catalogue.not_taken_away import NOT_TAKEN_AWAY
from tests.attacks.catalogue.refused_by import REFUSED_BY, find_defence
from tests.attacks.catalogue.rows import ROOT, Attack, named_in, read_rows
from tests.attacks.catalogue.without import WITHOUT, Without
from tests.attacks.taken_away.defences import DEFENCES

ROWS = read_rows()
HERE = Path(__file__).stem
MOST_SILENT = 63
"""Rows without a twin that shows the attack to succeed, and without a reason why there is none. To become fewer."""


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of the tests in a module."""
    file = ROOT / path
    nodes = ast.walk(ast.parse(file.read_text())) if file.is_file() else ()
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def exists(test: str) -> bool:
    path, _, name = test.partition("[")[0].partition("::")
    return name in names_in(path) if name else (ROOT / path).is_file()


def test_each_row_names_tests_that_exist() -> None:
    assert len(ROWS) > 200
    assert sorted({test for row in ROWS for test in row.tests if not exists(test)}) == []


def test_each_test_of_an_attack_is_in_a_row() -> None:
    told = {test for row in ROWS for test in row.tests}
    twins = {without.test for without in WITHOUT.values()}
    missing = []
    for path in sorted((ROOT / "tests" / "attacks").glob("test_*.py")):
        module = f"tests/attacks/{path.name}"
        rest = () if module in told or path.stem == HERE else names_in(module) - set(HONEST.get(path.stem, ()))
        missing += [f"{module}::{name}" for name in sorted(rest) if {f"{module}::{name}"}.isdisjoint(told | twins)]
    assert missing == [], "say in docs/threat-model.md which attack that is, or in catalogue/honest.py that it is none"


def test_each_honest_twin_exists() -> None:
    gone = [f"{module}::{name}" for module, names in HONEST.items() for name in names
            if name not in names_in(f"tests/attacks/{module}.py")]  # fmt: skip
    assert gone == []


def test_each_defence_is_a_file_or_folder_and_refuses_something() -> None:
    kubernetes = {defence for defence in REFUSED_BY.values() if defence.endswith("(Kubernetes)")}
    assert [each for each in sorted(set(REFUSED_BY.values()) - kubernetes) if not (ROOT / each).exists()] == []
    used = {find_defence(test) for row in ROWS for test in row.tests}
    used |= {find_defence(f"tests/attacks/{path.name}") for path in (ROOT / "tests/attacks").glob("test_[!c]*.py")}
    assert sorted(set(REFUSED_BY.values()) - used - {"tests/fuzz/targets.py", "provisioner/cli/main.py"}) == []


def test_each_defence_that_is_taken_away_has_an_attack_and_a_twin() -> None:
    attacked = {test for row in ROWS for test in row.tests}
    assert sorted(set(WITHOUT) - attacked) == []
    twins = [without.test for without in WITHOUT.values() if without.test is not None]
    assert [twin for twin in twins if not exists(twin)] == []
    assert [twin for twin in twins if "without" not in twin.partition("::")[2]] == []


def test_no_defence_is_taken_away_by_a_patch_and_by_a_test_of_its_own() -> None:
    by_hand = {test for family in FAMILIES.values() for tests in family.values() for test in tests}
    assert sorted(by_hand & set(DEFENCES)) == []


def test_each_reason_why_a_defence_is_not_taken_away_is_one_of_a_row() -> None:
    firsts = [row.tests[0] for row in ROWS if row.without is None]
    unused = [each for each in NOT_TAKEN_AWAY if not any(test.startswith(each) for test in firsts)]
    assert unused == []


def test_no_more_attacks_than_before_lack_both_a_twin_and_a_reason() -> None:
    """Whoever adds a row adds a twin to `families.py` or `without.py`, or a reason to `not_taken_away.py`."""
    silent = [row for row in ROWS if row.without is None and row.not_taken_away is None and not row.is_open]
    assert len(silent) <= MOST_SILENT, [row.tests[0] for row in silent]


def test_a_cell_names_its_tests_and_continues_its_module() -> None:
    cell = "`tests/a/test_b.py::test_one`, `…::test_two`; `tests/a/test_c.py`, and `words`"
    assert named_in(cell) == ("tests/a/test_b.py::test_one", "tests/a/test_b.py::test_two", "tests/a/test_c.py")


def test_a_test_of_which_nobody_says_what_refuses_it_is_an_error() -> None:
    with pytest.raises(KeyError, match="what refuses it"):
        find_defence("tests/nowhere/test_x.py::test_y")


ATTACKED, TWIN = "tests/attacks/test_a.py::test_refused", "tests/attacks/test_a.py::test_succeeds_without_it"


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ({ATTACKED: "passed", TWIN: "passed"}, ("refused", "succeeds")),
        ({ATTACKED: "failed", TWIN: "passed"}, ("FAILED", "succeeds")),
        ({ATTACKED: "passed", TWIN: "failed"}, ("refused", "FAILED")),
        ({ATTACKED: "skipped"}, ("skipped", "not run")),
        ({}, ("not run", "not run")),
    ],
)
def test_the_table_says_what_came_of_each_attack_and_of_its_twin(
    outcomes: Mapping[str, str], words: tuple[str, str]
) -> None:
    row = Attack(
        "Neighbour", "asks for everything", "provisioner/rules/rate.py", (ATTACKED,), Without("no limit", TWIN)
    )
    results = Results()
    for test, outcome in outcomes.items():
        results.add(f"{test}[a parameter]", outcome)
    table = render_table([row], results)
    assert all(
        each in table for each in ("Neighbour", "asks for everything", "rules/rate.py", "test_refused", "no limit")
    )
    assert words == (results.of_attack(row), results.of_twin(row))
    assert all(word in table for word in words)
