"""Allow-lists of a recipe: patterns, as `Path.glob` takes them, and the reason for each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from provisioner.image.tools.tables import RecipeGroup


def reasons(groups: Iterable[RecipeGroup]) -> dict[str, str]:
    """Name → why, of all groups of a recipe."""
    return {name: group.why for group in groups for name in group.names}


def reason_for(name: str, allowed: Mapping[str, str]) -> str | None:
    """Why `name` may be; None if no pattern matches it."""
    if (exact := allowed.get(name)) is not None:
        return exact
    return next((reason for pattern, reason in allowed.items() if matches(name, pattern)), None)


def matches(path: str, pattern: str) -> bool:
    """`*` and `?` stand for what has no `/` in it, `**` for any folders (at the end of a pattern: for all below)."""
    return _expression(pattern).fullmatch(path) is not None


def matching(paths: Iterable[str], pattern: str) -> list[str]:
    """Those of `paths` that match."""
    expression = _expression(pattern)
    return [path for path in paths if expression.fullmatch(path)]


@lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern[str]:
    parts = pattern.split("/")
    text = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            text += ".+" if last else "(?:[^/]+/)*"
        else:
            text += _segment(part) + ("" if last else "/")
    return re.compile(text, re.DOTALL)


def _segment(part: str) -> str:
    text, at = "", 0
    while at < len(part):
        character = part[at]
        closing = part.find("]", at + 2) if character == "[" else -1
        if character == "*":
            text += "[^/]*"
        elif character == "?":
            text += "[^/]"
        elif closing > 0:
            inner = part[at + 1 : closing].replace("\\", "\\\\").replace("[", "\\[")
            text += f"[^{inner[1:]}]" if inner[0] in "!^" else f"[{inner}]"
            at = closing
        else:
            text += re.escape(character)
        at += 1
    return text
