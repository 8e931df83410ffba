"""The header of a vendor's CSV: which line it is, what its columns mean, and what to say if that is not known."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import parse_mac
from provisioner.inventory.lists.entries import Mistake, Origin
from provisioner.inventory.lists.headers import (
    Column,
    column_of,
    field_name,
    interface_of,
    is_column,
    known_headers,
    looks_like_header,
    same_header,
)

WITHIN_LINES: Final = 30
"""A header is looked for in so many lines that are not empty."""

Line = tuple[int, list[str]]
"""Number of a line, and its cells."""

_NAMING: Final[tuple[Column, ...]] = ("name", "position", "serialNumber", "chassisSerialNumber")


@dataclass(frozen=True)
class Header:
    """Which column is which field or further interface, and the headers that are neither."""

    line: int
    texts: tuple[str, ...]
    columns: Mapping[int, Column]
    interfaces: Mapping[int, str]
    unused: tuple[str, ...]
    absent: tuple[str, ...]
    """Headers that were mapped by the caller, and are not in this list."""

    def text_of(self, column: Column) -> str | None:
        """The header of a column as the file spells it."""
        return next((self.texts[index] for index, found in self.columns.items() if found == column), None)


def find_header(lines: Sequence[Line], mapped: Mapping[str, str]) -> int | None:
    """Index of the first line that looks like a header, or has a header that `mapped` names; else of the likeliest."""
    candidates = lines[:WITHIN_LINES]
    for index, (_, cells) in enumerate(candidates):
        named = any(same_header(cell, header) for cell in cells for header in mapped.values())
        if looks_like_header(cells) or (named and _filled(cells) > 1):
            return index
    data_at = next((index for index, (_, cells) in enumerate(candidates) if any(map(_is_mac, cells))), len(candidates))
    above = [index for index in range(data_at) if _filled(candidates[index][1]) > 1]
    if not above:
        return None
    # Titles have fewer cells than the header below them. Where no MAC address tells the data, the first full line.
    return above[-1] if data_at < len(candidates) else max(above, key=lambda index: _filled(candidates[index][1]))


def understood(lines: Sequence[Line], mapped: Mapping[str, str]) -> tuple[int, int, int]:
    """How much is understood of a list that was split in some way: headers that one line has, lines with a MAC address,
    cells of the longest line."""
    candidates = lines[:WITHIN_LINES]

    def is_known(cell: str) -> bool:
        named = any(same_header(cell, header) for header in mapped.values())
        return named or column_of(cell) is not None or interface_of(cell) is not None

    headers = max((sum(map(is_known, cells)) for _, cells in candidates), default=0)
    macs = sum(any(map(_is_mac, cells)) for _, cells in candidates)
    return headers, macs, max((len(cells) for _, cells in candidates), default=0)


def read_header(line: Line, file: str, mapped: Mapping[str, str], mistakes: list[Mistake]) -> Header:
    """What each column of a header means. `mapped`: headers by field, which go before what is known of them."""
    number, texts = line[0], [" ".join(text.split()) for text in line[1]]
    columns: dict[int, Column] = {}
    interfaces: dict[int, str] = {}
    unused: list[str] = []
    for index, text in enumerate(texts):
        given = next((field for field, header in mapped.items() if same_header(text, header)), None)
        column, interface = column_of(text), interface_of(text)
        if given is not None:
            column, interface = (given, None) if is_column(given) else (None, given)
        elif column in mapped or interface in mapped:
            column = interface = None  # another column was named for it
        if column is not None and column in columns.values():
            other = texts[next(i for i, c in columns.items() if c == column)]
            observed = f"columns {other!r} and {text!r} both mean {column}"
            remedy = "rename or remove the other"
            if not same_header(other, text):
                remedy = f"say which: {_option(column, other)} or {_option(column, text)}"
            mistakes.append(Mistake(Origin(file, number, text), observed, "one of them", remedy))
        elif column is not None:
            columns[index] = column
        elif interface is not None:
            interfaces[index] = interface
        elif text:
            unused.append(text)
    if "bootMACAddress" not in columns.values() and interfaces:
        # "MAC 1", "MAC 2": the first one boots.
        first = min(interfaces)
        columns[first] = "bootMACAddress"
        del interfaces[first]
    absent = tuple(header for header in mapped.values() if not any(same_header(header, text) for text in texts))
    return Header(number, tuple(texts), columns, interfaces, tuple(unused), absent)


def lacking(header: Header, rows: Sequence[Line], file: str, *, has_rack: bool) -> Iterator[Mistake]:
    """What every row would lack, each thing once."""
    known = header.columns.values()
    origin = Origin(file, header.line)
    if "bootMACAddress" not in known:
        yield _no_mac_column(header, rows, origin)
    if not any(column in known for column in _NAMING):
        names = " or ".join(field_name(column) for column in _NAMING[:3])
        remedy = "fill one in" if not header.unused else f"add one, or map one of {_quoted(header.unused)}: {_EXAMPLE}"
        yield Mistake(origin, "no column that a server can be named by", f"a column {names}", remedy)
    if "rackRef" not in known and not has_rack:
        yield Mistake(origin, "no rack", "the rack in which each server stands", "give --rack NAME or a column Rack")


def _no_mac_column(header: Header, rows: Sequence[Line], origin: Origin) -> Mistake:
    """Says which headers were not understood, which are known, and how to map one; which one, if the data tells."""
    observed, remedy = "no column is known to hold the MAC address", "add the column of the interface that boots"
    if header.unused:
        observed += f"; headers not understood: {_quoted(header.unused)}"
        remedy = f"map what you know of them: {_EXAMPLE}"
    holders = [
        text
        for index, text in enumerate(header.texts)
        if text in header.unused and any(map(_is_mac, (cells[index] for _, cells in rows if index < len(cells))))
    ]
    if holders:
        which = "it holds MAC addresses" if len(holders) == 1 else "they hold MAC addresses: one of them boots"
        options = " or ".join(_option("bootMACAddress", text) for text in holders)
        remedy = f"give {options} ({which}), and the same for others"
    return Mistake(
        origin,
        observed,
        "headers that are known, for each FIELD (case, spaces, punctuation and order of words do not matter):\n"
        f"{known_headers()}",
        f"{remedy}; --save-columns FILE keeps it for this vendor's next list, --columns FILE takes it from there",
    )


_EXAMPLE: Final = "--column FIELD='HEADER'"


def _option(column: Column, header: str) -> str:
    return f"--column {field_name(column)}={shlex.quote(header)}"


def _quoted(headers: Sequence[str]) -> str:
    return ", ".join(repr(header) for header in headers)


def _filled(cells: Sequence[str]) -> int:
    return sum(1 for cell in cells if cell)


def _is_mac(cell: str) -> bool:
    try:
        parse_mac(cell)
    except Refused:
        return False
    return True
