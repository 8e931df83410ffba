"""No test of this tree asserts nothing; and which assertions are none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.suite.assertions import find_empty_assertions

ROOT = Path(__file__).parents[2]


def sources(folder: str) -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted((ROOT / folder).rglob("*.py"))}


def test_each_test_asserts_something_that_may_fail() -> None:
    names_of_product = set(re.findall(r"def (\w+)\(", "".join(sources("provisioner").values())))
    assert find_empty_assertions(sources("tests"), names_of_product) == []


GOOD = """
def check(x):
    assert x

def test_by_a_function_of_the_tests():
    check(act())

def test_by_a_method_of_the_tests():
    it.check(act())

def test_by_pytest():
    with pytest.raises(ValueError):
        act()

def test_over_what_is_shown_to_be_some():
    found = act()
    assert len(found) == 2
    assert all(each > 0 for each in found)

def test_over_what_is_some_as_it_is_written():
    found = [act(number) for number in range(5)]
    assert all(found[-2:])
    assert not any(each in THESE for each in THESE)
"""


def test_what_asserts_is_left_alone() -> None:
    assert find_empty_assertions({"test_a.py": GOOD}) == []
    assert find_empty_assertions({"test_a.py": GOOD}, ["check"]) == ["test_a.py:8: no assertion"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("act()", "no assertion"),
        ("assert True", "always true"),
        ("assert (act(), 'words')", "always true"),
        ("assert found or not found", "always true"),
        ("assert found.x == found.x", "always true"),
        ("assert all(each > 0 for each in act())", "nothing to fail"),
        ("assert x and not any(each in found for each in list(found))", "nothing to fail"),
        ("assert all(each > 0 for each in (1, 2) if act(each))", "nothing to fail"),
    ],
)
def test_what_proves_nothing_is_found(body: str, words: str) -> None:
    (found,) = find_empty_assertions({"tests/test_a.py": f"def test_it():\n    {body}\n"})
    assert found.partition(": ")[2] == words
