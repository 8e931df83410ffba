from __future__ import annotations

import pytest

from provisioner.image.gates.sizes import check_sizes
from tests.image.gates.samples import told

PARTS = {"kernel": 900, "stage1": 20, "layer.base": 60, "layer.driver": 40, "document.sbom": 900}
COMPONENTS = [(f"c{number}", number * 1_000_000) for number in range(1, 12)]


def test_layers_and_stage_1_within_their_budgets_pass_to_the_byte() -> None:
    assert told(check_sizes(PARTS, 100, 20, COMPONENTS)) == []
    assert told(check_sizes({"root": 100, "stage1": 20, "kernel": 900}, 100, 20, [])) == []


@pytest.mark.parametrize("parts", [PARTS, {"root": 100, "stage1": 20, "kernel": 900}])
def test_a_byte_more_fails(parts: dict[str, int]) -> None:
    assert [name for name, _ in told(check_sizes(parts, 99, 20, []))] == ["layers"]
    assert [name for name, _ in told(check_sizes(parts, 100, 19, []))] == ["stage-1"]


def test_the_largest_components_are_told_the_largest_first() -> None:
    ((_, observed),) = told(check_sizes(PARTS, 10, 20, COMPONENTS))
    assert observed.startswith("0.0 MB; largest: layer.base 0.0 MB, layer.driver 0.0 MB, c11 11.0 MB, c10 10.0 MB, ")
    assert "c4 4.0 MB" in observed
    assert "c3 " not in observed
