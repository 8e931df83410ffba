"""A planted fault: one line of one file that becomes another, and the tests that should notice.

`faults/` has a file for each package or part of the tree; a fault's table in it is named by what is broken:

    ["an expired challenge is accepted"]
    file = "provisioner/attestation/challenge.py"
    line = "if age_seconds > LIFETIME_SECONDS:"
    becomes = "if age_seconds > 10 * LIFETIME_SECONDS:"
    tests = ["tests/attestation/test_challenge.py"]

Lines are written without their indentation, which stays. `more` lists tests that are slower, for what `tests` miss;
`equivalent` is the reason why no test can notice.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FAULTS: Final = Path(__file__).parent / "faults"


class NotApplicable(Exception):
    """The fault cannot be planted in this tree; says why."""


@dataclass(frozen=True)
class Fault:
    """`area` is the path of its file in `faults/`, without `.toml`; of one that is derived, its folder."""

    area: str
    name: str
    file: str
    line: str
    becomes: str
    tests: tuple[str, ...]
    more: tuple[str, ...] = ()
    equivalent: str | None = None
    occurrence: int | None = None
    """Which of several lines like this one it is, from 0; None if the line occurs once."""


def read_faults(folder: Path = FAULTS) -> tuple[Fault, ...]:
    """All faults, area by area, in the order of their files.

    Raises: TypeError for a key that is missing or unknown; tomllib.TOMLDecodeError for a name that a file has twice.
    """
    faults = []
    for path in sorted(folder.rglob("*.toml")):
        area = path.relative_to(folder).with_suffix("").as_posix()
        for name, keys in tomllib.loads(path.read_text()).items():
            lists: dict[str, Any] = {key: tuple(keys[key]) for key in ("tests", "more") if key in keys}
            faults.append(Fault(area, name, **keys | lists))
    return tuple(faults)


def choose_faults(faults: Sequence[Fault], words: Sequence[str]) -> tuple[Fault, ...]:
    """The faults of the areas and files that `words` name; `network` names `network/agent` too. All, without a word.

    Raises: LookupError for a word that names none.
    """

    def names(word: str, fault: Fault) -> bool:
        return word in (fault.area, fault.file) or fault.area.startswith(f"{word}/")

    if unknown := [word for word in words if not any(names(word, fault) for fault in faults)]:
        areas = ", ".join(sorted({fault.area for fault in faults}))
        raise LookupError(f"no fault is in {', '.join(unknown)}; name a file, or one of: {areas}")
    return tuple(fault for fault in faults if not words or any(names(word, fault) for word in words))


def plant(fault: Fault, tree: Path) -> str:
    """The text of the fault's file with the fault in it.

    Raises: NotApplicable if there is no such file, or if its line is not there, or twice without `occurrence`.
    """
    path = tree / fault.file
    if not path.is_file():
        raise NotApplicable(f"there is no {fault.file}")
    lines = path.read_text().splitlines(keepends=True)
    found = [number for number, line in enumerate(lines) if line.strip() == fault.line]
    if (len(found) != 1) if fault.occurrence is None else (len(found) <= fault.occurrence):
        wanted = 1 if fault.occurrence is None else f"more than {fault.occurrence}"
        raise NotApplicable(f"{fault.file} has {len(found)} lines {fault.line!r}, not {wanted}")
    number = found[fault.occurrence or 0]
    lines[number] = lines[number].replace(fault.line, fault.becomes)
    return "".join(lines)


def missing_tests(tests: Sequence[str], tree: Path) -> tuple[str, ...]:
    """Those whose file or folder is not in the tree."""
    return tuple(test for test in tests if not (tree / test.partition("::")[0]).exists())
