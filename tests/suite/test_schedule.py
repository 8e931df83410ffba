"""Which worker takes which file."""

from __future__ import annotations

from tests.suite.schedule import RACK, plan

PLANE = "tests::control_plane"
TESTS = [
    *(f"tests/rules/test_small.py::test_{number}" for number in range(3)),
    *(f"tests/rules/test_large.py::test_{number}" for number in range(9)),
    "tests/join/test_join.py::test_it",
    "tests/join/test_more.py::test_it",
    "tests/journey/test_a.py::test_it",
    "tests/journey/test_b.py::test_it[a::b]",
]
FIXTURES = {
    "tests/join/test_join.py": {PLANE},
    "tests/join/test_more.py": {PLANE},
    "tests/journey/test_a.py": {RACK, PLANE},
    "tests/journey/test_b.py": {RACK},
}


def test_files_of_the_rack_stay_together_and_the_others_are_units_of_their_own() -> None:
    made = plan(TESTS, FIXTURES)
    assert made.unit_of["tests/journey/test_a.py"] == made.unit_of["tests/journey/test_b.py"] == RACK
    assert made.unit_of["tests/rules/test_small.py"] == "tests/rules/test_small.py"
    assert set(made.shared) == {RACK, *(file for file in made.unit_of if "journey" not in file)}


def test_a_worker_begins_with_what_is_costly_and_goes_on_with_what_it_has_started() -> None:
    made = plan(TESTS, FIXTURES)
    left = set(made.shared)
    first = made.choose("gw0", left)
    assert first == RACK
    left.remove(first)
    second = made.choose("gw1", left)
    assert second.startswith("tests/join/")
    left.remove(second)
    assert made.choose("gw1", left).startswith("tests/join/")


def test_no_more_workers_than_planned_start_what_is_costly_until_nothing_else_is_left() -> None:
    made = plan(TESTS, FIXTURES)
    left = set(made.shared) - {RACK}
    made.owners[PLANE] = {"gw1", "gw2", "gw3", "gw4", "gw5"}
    assert made.choose("gw0", left) == "tests/rules/test_large.py"
    assert made.choose("gw0", left - {"tests/rules/test_large.py"}) == "tests/rules/test_small.py"
    assert made.choose("gw0", {"tests/join/test_join.py"}) == "tests/join/test_join.py"
