"""What a test of a bad object is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """`bad` is refused with all of `words` and none of `unsaid`; `good` is accepted. `before` exists already, for rules
    about changes."""

    mistake: str
    bad: dict[str, Any]
    good: dict[str, Any]
    words: tuple[str, ...]
    before: dict[str, Any] | None = None
    unsaid: tuple[str, ...] = ()
