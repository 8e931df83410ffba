"""Every fault of `faults/` can be planted in this tree: none is left out of a run unnoticed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.fault import Fault, plant, read_faults

CHECKOUT = Path(__file__).parents[2]
FAULTS = read_faults()
AREAS = {
    *(path.name for path in (CHECKOUT / "provisioner").iterdir() if (path / "__init__.py").exists()),
    *("ansible", "artefacts", "charts", "images", "lab", "policies"),
}


def test_every_part_of_the_tree_has_faults() -> None:
    assert {fault.area.partition("/")[0] for fault in FAULTS} == AREAS


@pytest.mark.parametrize("area", sorted({fault.area for fault in FAULTS}))
def test_each_line_is_there_once_and_becomes_another_that_can_be_read(area: str) -> None:
    for fault in FAULTS:
        if fault.area == area:
            text = plant(fault, CHECKOUT)
            assert text != (CHECKOUT / fault.file).read_text(), fault.name
            if fault.file.endswith(".py"):
                ast.parse(text, fault.name)


@pytest.mark.parametrize("test", sorted({test for fault in FAULTS for test in (*fault.tests, *fault.more)}))
def test_each_test_that_a_fault_names_exists(test: str) -> None:
    path, _, function = test.partition("::")
    assert (CHECKOUT / path).exists()
    assert not function or f"def {function.partition('[')[0]}(" in (CHECKOUT / path).read_text()


def test_a_fault_is_named_once_and_has_tests_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.tests for fault in FAULTS)


def test_a_line_is_written_without_its_indentation() -> None:
    def is_bare(fault: Fault) -> bool:
        return fault.line == fault.line.strip() and "\n" not in fault.line + fault.becomes

    assert [fault.name for fault in FAULTS if not is_bare(fault)] == []
