"""Strings that many objects of a copy have, once in memory."""

from __future__ import annotations

import sys
from typing import Any, Final

SHARED_CHARACTERS: Final = 128
"""Longer strings are rarely the same in two objects."""
REMEMBERED: Final = 2048


class SharedStrings:
    """Gives JSON the strings that others had before it. For one thread.

    Each page of a list and each line of a watch brings its own: of a Server in a copy they are half of the memory. Most
    strings are never seen again (identifiers, times), so only the last ones are remembered, and those for longer that
    are met again and again; `sys.intern` would keep a place for each, some 40 bytes, as long as it lives.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._young: dict[str, str] = {}
        self._old: dict[str, str] = {}

    def share(self, value: Any) -> Any:
        """A copy of JSON with shared keys and strings."""
        if isinstance(value, dict):
            return {sys.intern(key): self.share(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.share(item) for item in value]
        return self._string(value) if isinstance(value, str) and len(value) <= SHARED_CHARACTERS else value

    def _string(self, value: str) -> str:
        found = self._young.get(value)
        if found is not None:
            return found
        if len(self._young) >= self._remembered:
            self._young, self._old = {}, self._young
        found = self._old.get(value, value)
        self._young[found] = found
        return found
