"""Text of ours as Markdown: nothing in it is taken for markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>#|])")


def words(text: str) -> str:
    """Prose in which every character stands for itself, on one line. What is between backquotes stays code."""
    pieces = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(code(piece[1:-1]) if at % 2 else _MARKUP.sub(r"\\\1", piece) for at, piece in enumerate(pieces))


def code(text: str) -> str:
    """Literal text; a bar in it does not end the cell of a table."""
    marks = "``" if "`" in text else "`"
    return f"{marks}{text}{marks}".replace("|", "\\|") if text else ""


def heading(level: int, text: str) -> str:
    """A heading whose text is literal."""
    return f"{'#' * level} {words(text)}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its cells are Markdown already."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
