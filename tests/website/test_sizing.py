"""The sizing table holds figures that were measured, and no others."""

from __future__ import annotations

import re

import pytest

from website.hooks import CHECKOUT

PAGE = CHECKOUT / "docs/sizing.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and "**" in line]


def test_there_are_rows_to_look_at() -> None:
    assert len(ROWS) > 10


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_bold_figure_stands_in_the_file_that_its_row_links_to(row: str) -> None:
    target = re.search(r"\]\(\.\./(tests/benchmarks/results/[a-z_]+\.md)\)", row)
    assert target, f"{row} links to no results"
    measured = (CHECKOUT / target.group(1)).read_text()
    for figure in re.findall(r"\*\*([^*]+)\*\*", row):
        found = re.search(rf"(?<![\d.,]){re.escape(figure)}(?![.,]?\d)", measured)
        assert found, f"{figure} is not in {target.group(1)}"
