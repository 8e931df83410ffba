"""Files of sysfs, procfs and /run: what cannot be read says nothing. Without pathlib, which costs start-up time."""

from __future__ import annotations

import os

_MOST_CHARACTERS = 65536


def read_text(path: str | os.PathLike[str]) -> str:
    """Without the blanks around it; "" of a file that is missing, or whose driver refuses (EINVAL, as for the speed of
    an interface that is down)."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(_MOST_CHARACTERS).strip()
    except OSError:
        return ""


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """What is in a folder, sorted; nothing of one that is missing."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208
    except OSError:
        return []
