"""The commands of docs/tutorial, with what a reader is told that they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs/tutorial/index.md"

_BLOCK: Final = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_VARIES: Final = (
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\b([a-z]+-)+[0-9a-f]{12}\b"), "IMAGE"),
    (re.compile(r"(?<=tutorial-)[a-z0-9]{5}\b"), "POD"),
    (re.compile(r"(?<=Maintenance r01-u01-)\d+"), "N"),
    (re.compile(r"\b(\d+ ?(s|min|m|h|d) ?)+(?!\w)"), "SPAN "),
    (re.compile(r"\bround \d+"), "round N"),
    (re.compile(r"\s+"), " "),
)
"""What differs from one run to the next, and what it becomes on both sides before they are compared."""


@dataclass(frozen=True)
class Step:
    """One command, and the lines that it prints, of which a reader is shown these, in this order."""

    command: str
    shown: tuple[str, ...]


def steps(markdown: str) -> Iterator[Step]:
    """Every command of the page, in its order. A line `...` stands for any number of lines."""
    for block in _BLOCK.findall(markdown):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.rstrip("\n").split("\n")
            yield Step(command, tuple(line for line in shown if line != "..."))


def first_missing(shown: tuple[str, ...], printed: str) -> str | None:
    """The first of the lines that was not printed, after those before it; None if all were."""
    lines = iter([same(line) for line in printed.splitlines()])
    return next((line for line in shown if same(line) not in lines), None)


def same(line: str) -> str:
    """The line without what differs from run to run."""
    for varies, word in _VARIES:
        line = varies.sub(word, line)
    return line.strip()
