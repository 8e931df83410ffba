"""Slurm's way to write many names in one: `gpu[001-003,7],login1`, `r[1-2]u[01-04]`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

MAX_NAMES: Final = 65536
"""Slurm takes no more nodes."""
MAX_LETTERS: Final = 32 * 1024
"""Five thousand ranges."""

_PART: Final = re.compile(r"([^\[\],]+)|\[([^\[\]]+)\]")
_ENTRY: Final = re.compile(r"(?:[^\[\],]+|\[[^\[\]]+\])+")
_RANGE: Final = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")

_Range = tuple[int, int, int]
"""First, last, digits at least."""
_Part = str | tuple[_Range, ...]


def expand(text: str) -> tuple[str, ...]:
    """The names that `text` stands for, in its order. Raises: ValueError if it is not one, or names too many."""
    return tuple(
        "".join(parts)
        for entry in _read(text)
        for parts in itertools.product(*((part,) if isinstance(part, str) else _numbers(part) for part in entry))
    )


def count(text: str) -> int:
    """How many names those are, without making them. Raises: ValueError."""
    return _count(_read(text))


@lru_cache(maxsize=1024)
def includes(text: str, name: str) -> bool:
    """Whether `name` is among them, without making them. Raises: ValueError."""
    return any(_matches(entry, name) for entry in _read(text))


@lru_cache(maxsize=32)
def _read(text: str) -> tuple[tuple[_Part, ...], ...]:
    """The entries between commas, by their parts."""
    if len(text) > MAX_LETTERS:
        raise ValueError(f"{text[:80]!r}… has {len(text)} letters, a list of hosts at most {MAX_LETTERS}")
    if text.count("[") != text.count("]"):
        raise ValueError(f"{text[:80]!r} has brackets without their counterpart")
    entries: list[tuple[_Part, ...]] = []
    at = 0
    while at < len(text):
        found = _ENTRY.match(text, at)
        if found is not None:
            entry = found.group().strip()
            at = found.end()
            if entry:
                entries.append(
                    tuple(part.group(1) or _ranges(part.group(2)) for part in _PART.finditer(entry)),
                )
        if at < len(text) and text[at] != ",":
            raise ValueError(f"{text[:80]!r} is not a list of hosts")
        at += 1
    if _count(entries) > MAX_NAMES:
        raise ValueError(f"{text[:80]!r} names more than {MAX_NAMES} hosts")
    return tuple(entries)


def _ranges(text: str) -> tuple[_Range, ...]:
    ranges = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part)
        if found is None or int(found.group(2) or found.group(1)) < int(found.group(1)):
            raise ValueError(f"{part[:80]!r} is not a range of numbers")
        ranges.append((int(found.group(1)), int(found.group(2) or found.group(1)), len(found.group(1))))
    return tuple(ranges)


def _count(entries: Iterable[tuple[_Part, ...]]) -> int:
    return sum(
        math.prod(1 if isinstance(part, str) else sum(last - first + 1 for first, last, _ in part) for part in entry)
        for entry in entries
    )


def _numbers(ranges: tuple[_Range, ...]) -> Iterator[str]:
    for first, last, digits in ranges:
        for number in range(first, last + 1):
            yield str(number).zfill(digits)


def _matches(parts: tuple[_Part, ...], name: str) -> bool:
    """Where two brackets adjoin, each way to share the digits out is tried: there are no more than names."""
    if not parts:
        return not name
    part = parts[0]
    if isinstance(part, str):
        return name.startswith(part) and _matches(parts[1:], name[len(part) :])
    for length in range(1, len(name) + 1):
        digits = name[:length]
        if not (digits.isascii() and digits.isdigit()):
            return False
        number = int(digits)
        listed = any(first <= number <= last and digits == str(number).zfill(least) for first, last, least in part)
        if listed and _matches(parts[1:], name[length:]):
            return True
    return False
