"""Which of two versions of a Go module is the newer one. Source: Semantic Versioning 2.0.0, chapter 11."""

from __future__ import annotations

import re
from typing import Final

from provisioner.api.machinery.errors import Refused

_VERSION: Final = re.compile(r"v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]*)?")
_TOOLCHAIN: Final = re.compile(r"(\d+\.\d+)(rc|beta)(\d+)")

Key = tuple[tuple[int, int, int], int, tuple[tuple[int, int, str], ...]]


def semantic_key(version: str) -> Key:
    """What sorts as the standard says. Raises: Refused if it is no version."""
    if toolchain := _TOOLCHAIN.fullmatch(version):  # Go's own: 1.27rc1
        version = f"{toolchain[1]}.0-{toolchain[2]}.{toolchain[3]}"
    match = _VERSION.fullmatch(version)
    if match is None:
        raise Refused(f"{version[:80]!r} is no semantic version", hint="check the list it comes from")
    numbers = (int(match[1]), int(match[2] or 0), int(match[3] or 0))
    before = tuple(
        (0, int(word), "") if word.isdecimal() else (1, 0, word) for word in (match[4] or "").split(".") if word
    )
    return numbers, 0 if before else 1, before
