"""Which of two versions of a Debian package is the newer one, as dpkg says. Source: deb-version(7)."""

from __future__ import annotations

import re
from typing import Final

from provisioner.api.machinery.errors import Refused

_PART: Final = re.compile(r"([^0-9]*)([0-9]*)")
_ALLOWED: Final = re.compile(r"(?:(\d{1,9}):)?([0-9A-Za-z.+~:-]+?)(?:-([0-9A-Za-z.+~]+))?")

Key = tuple[int, tuple[tuple[tuple[int, ...], int], ...], tuple[tuple[tuple[int, ...], int], ...]]


def debian_key(version: str) -> Key:
    """What sorts as dpkg sorts. Raises: Refused if it is no version."""
    match = _ALLOWED.fullmatch(version)
    if match is None:
        raise Refused(f"{version[:80]!r} is no version of a Debian package", hint="check the list it comes from")
    return int(match[1] or 0), _parts(match[2]), _parts(match[3] or "")


def _parts(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Pairs of what is no digit and a number; an end, which is less than all but `~`, behind each and behind all."""
    found = [
        (tuple(map(_order, letters)), int(digits or 0)) for letters, digits in _PART.findall(text) if letters or digits
    ]
    return (*(((*letters, 0), number) for letters, number in found or [((), 0)]), ((0,), 0))


def _order(character: str) -> int:
    """`~` before the end, the end before letters, letters before all others."""
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
