"""The attacks: each row of docs/threat-model.md that names a test, with what refuses it and how that is taken away.

The words stand in the document alone. What only tests need, and people would read past, stands beside this file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.attacks.catalogue.more import MORE
from tests.attacks.catalogue.not_taken_away import find_reason
from tests.attacks.catalogue.refused_by import find_defence
from tests.attacks.catalogue.without import WITHOUT, Without

ROOT: Final = Path(__file__).parents[3]
DOCUMENT: Final = ROOT / "docs" / "threat-model.md"

_NAMED: Final = re.compile(r"`(tests/[\w/]+\.py|…)(?:::(\w+))?`")


@dataclass(frozen=True)
class Attack:
    """who: the section it stands in. tests: `path::name`, or the path of a module whose tests are all of it.

    refused_by: the module, or folder, that refuses it. without: how the defence is taken away, with the test that shows
    that the attack then succeeds; None where no test does that.
    """

    who: str
    attack: str
    refused_by: str
    tests: tuple[str, ...]
    without: Without | None = None

    @property
    def not_taken_away(self) -> str | None:
        """Why no test takes the defence away; None where one does, or where nobody has said why."""
        return None if self.without is not None else find_reason(self.tests[0])

    @property
    def is_open(self) -> bool:
        """Whether the document says that this attack succeeds (its words are set in bold)."""
        return self.attack.startswith("**")


def read_rows(text: str | None = None) -> tuple[Attack, ...]:
    """Every attack with a test: those of the document, in its order, and in each section those that it
    does not tell."""
    rows = [*_rows(DOCUMENT.read_text() if text is None else text), *(_row(*each) for each in MORE)]
    sections = list(dict.fromkeys(row.who for row in rows))
    return tuple(sorted(rows, key=lambda row: sections.index(row.who)))


def _rows(text: str) -> Iterator[Attack]:
    who, header = "", ()
    for line in text.splitlines():
        if line.startswith("## "):
            who = line[3:]
        if line.startswith("|---"):
            continue
        if not line.startswith("| "):
            header = ()
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not header:
            header = tuple(cells)
        elif header[-1] == "test" and (tests := named_in(cells[-1])):
            yield _row(who, cells[0], tests)


def _row(who: str, attack: str, tests: tuple[str, ...]) -> Attack:
    without = next((WITHOUT[test] for test in tests if test in WITHOUT), None)
    return Attack(who, attack, find_defence(tests[0]), tests, without)


def named_in(cell: str) -> tuple[str, ...]:
    """The tests that a cell names; `…` is the module named before."""
    found, module = [], ""
    for path, name in _NAMED.findall(cell):
        module = module if path == "…" else path
        found.append(f"{module}::{name}" if name else module)
    return tuple(found)
