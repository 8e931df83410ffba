"""What mstprivhost and mstconfig print, read strictly: what is not there as it is documented is not guessed.

Sources: MFT documentation, "mlxprivhost" (query) and "mlxconfig" (query with -e); Mellanox/mstflint, mstprivhost.py and
mlxcfg_ui.cpp, whose columns differ in width between releases.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

SWITCHES: Final = ("disable_rshim", "disable_tracer", "disable_counter_rd", "disable_port_owner")

_LEVEL: Final = re.compile(r"level\s*:\s*(\S.*)\Z")
_SWITCH: Final = re.compile(rf"({'|'.join(SWITCHES)})\s*:\s*(\S.*)\Z")
_HEADER: Final = re.compile(r"Configurations:\s+(Default\s+)?(Current\s+)?Next Boot\Z")
_ROW: Final = re.compile(r"[* ]?(?:RO)?\s+([A-Z][A-Za-z0-9_]{0,63})\s+(\S.*)\Z")
# A value of 16 letters fills its column, and some releases put no space behind it.
_CELLS: Final = re.compile(r"(?:[^\s()]{1,64}(?:\([0-9]{1,10}\)\s*|\s+|\Z))+\Z")
_CELL: Final = re.compile(r"([^\s()]+)(?:\(([0-9]+)\))?")
_NOT_TOLD: Final = "N/A"
_LONGEST_LINE: Final = 1024
_LONGEST_TOLD: Final = 64


class UnreadableOutput(Exception):
    """What a program printed is not what it is documented to print; the message says what, and what was expected."""


@dataclass(frozen=True)
class HostPrivileges:
    """What the card has stored of its host. switches: by their names, whether what they name is disabled."""

    level: Literal["RESTRICTED", "PRIVILEGED"]
    switches: Mapping[str, bool]


@dataclass(frozen=True)
class Value:
    """Of a setting: a word with its number, or one of both."""

    word: str
    number: str | None = None

    def is_(self, wanted: str) -> bool:
        """Whether it is what a person or the API calls `wanted`: ENABLED, or 0."""
        return wanted.casefold() == self.word.casefold() or wanted == self.number

    def __str__(self) -> str:
        said = self.word if self.number is None else f"{self.word}({self.number})"
        return said[:_LONGEST_TOLD]


@dataclass(frozen=True)
class Setting:
    """stored: with what the card begins when its power comes back. in_force: what it does now; None if not told."""

    stored: Value
    in_force: Value | None


def read_host_privileges(text: str) -> HostPrivileges:
    """Of `mstprivhost -d DEVICE q`. Raises: UnreadableOutput."""
    levels: list[str] = []
    switches: dict[str, bool] = {}
    for line in _lines(text):
        level, switch = _LEVEL.match(line), _SWITCH.match(line)
        if level is not None:
            levels.append(level[1])
        elif switch is not None:
            if switch[1] in switches or switch[2] not in ("TRUE", "FALSE"):
                raise UnreadableOutput(f"mstprivhost printed {_told(line)}, where TRUE or FALSE was expected, once")
            switches[switch[1]] = switch[2] == "TRUE"
    missing = [each for each in SWITCHES if each not in switches]
    if missing:
        raise UnreadableOutput(f"mstprivhost printed no {missing[0]}: see whether this one has the command q")
    if levels == ["RESTRICTED"]:
        return HostPrivileges("RESTRICTED", switches)
    if levels == ["PRIVILEGED"]:
        return HostPrivileges("PRIVILEGED", switches)
    raise UnreadableOutput(f"mstprivhost printed level {_told(', '.join(levels))}, not RESTRICTED or PRIVILEGED, once")


def read_settings(text: str, names: Collection[str]) -> dict[str, Setting]:
    """Of `mstconfig -d DEVICE -e q NAME…`: each of `names`. Raises: UnreadableOutput."""
    columns: list[str] = []
    found: dict[str, Setting] = {}
    for line in _lines(text):
        header, row = _HEADER.match(line), _ROW.match(line)
        if header is not None:
            if columns:
                raise UnreadableOutput("mstconfig printed the settings of more than one card")
            columns = [*(each.strip() for each in header.groups() if each), "Next Boot"]
        elif row is not None and row[1] in names:
            if row[1] in found:
                raise UnreadableOutput(f"mstconfig printed {row[1]} twice")
            found[row[1]] = _read_row(columns, row[1], row[2])
    missing = [each for each in names if each not in found]
    if not columns or missing:
        what = f"no setting {missing[0]}" if columns else "no line Configurations: … Next Boot"
        raise UnreadableOutput(f"mstconfig printed {what}")
    return found


def _read_row(columns: list[str], name: str, cells: str) -> Setting:
    values = [Value(word, number or None) for word, number in _CELL.findall(cells)] if _CELLS.match(cells) else []
    if not columns or len(values) != len(columns):
        expected = f"a value in each of the columns {', '.join(columns)}"
        expected = expected if columns else "a line Configurations: before"
        raise UnreadableOutput(f"mstconfig printed {name} {_told(cells)}, where {expected} was expected")
    by_column = dict(zip(columns, values, strict=True))
    in_force = by_column.get("Current")
    return Setting(by_column["Next Boot"], None if in_force is None or in_force.word == _NOT_TOLD else in_force)


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if len(line) > _LONGEST_LINE:
            raise UnreadableOutput(f"a line of {len(line)} letters was printed, with more than {_LONGEST_LINE}")
        yield line.rstrip()


def _told(text: str) -> str:
    return repr(text[:_LONGEST_TOLD])
