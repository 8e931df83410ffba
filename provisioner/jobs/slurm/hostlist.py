"""Slurm's way to write many names in one: `gpu[001-003,7],login1`, `r[1-2]u[01-04]`."""

from __future__ import annotations

import itertools
import re
from typing import Final

MAX_NAMES: Final = 65536

_PARTS: Final = re.compile(r"([^\[\],]+)|\[([^\[\]]+)\]")
_RANGE: Final = re.compile(r"(\d+)(?:-(\d+))?")


def expand(text: str) -> tuple[str, ...]:
    """The names that `text` stands for, in its order. Raises: ValueError if it is not one, or names too many."""
    names: list[str] = []
    for entry in _split(text):
        if "".join(found.group(0) for found in _PARTS.finditer(entry)) != entry:
            raise ValueError(f"{entry!r} is not a list of hosts")
        choices = [
            (found.group(1),) if found.group(1) is not None else _numbers(found.group(2))
            for found in _PARTS.finditer(entry)
        ]
        names += itertools.islice(("".join(parts) for parts in itertools.product(*choices)), MAX_NAMES + 1)
        if len(names) > MAX_NAMES:
            raise ValueError(f"{text[:80]!r} names more than {MAX_NAMES} hosts")
    return tuple(names)


def _split(text: str) -> list[str]:
    """At the commas outside of brackets."""
    entries, depth, current = [], 0, ""
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            entries.append(current)
            current = ""
        else:
            current += character
    if depth != 0:
        raise ValueError(f"{text[:80]!r} has brackets without their counterpart")
    return [entry.strip() for entry in (*entries, current) if entry.strip()]


def _numbers(text: str) -> tuple[str, ...]:
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            raise ValueError(f"{part!r} is not a range of numbers")
        first, last = found.group(1), found.group(2) or found.group(1)
        if not 0 <= int(last) - int(first) <= MAX_NAMES:
            raise ValueError(f"{part!r} is not a range of numbers")
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return tuple(numbers)
