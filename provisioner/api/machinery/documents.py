"""Files in YAML, JSON and CSV that people hand over, and that others have written: read with bounds of bytes, depth and
aliases. tests/cli/test_parser.py holds every command to this module.

libyaml composes a document by recursion in C, which a few thousand brackets end with a fault of the process: what is
nested is counted in its events first. An alias stands for all that its anchor holds, and one within its own anchor for
more than there is.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from provisioner.api.machinery.errors import Refused

MOST_BYTES: Final = 64 << 20
MOST_DEPTH: Final = 64
MOST_NODES: Final = 4_000_000
"""Of a document, each alias counted as what it stands for."""
MOST_CELL: Final = 131_072
"""Characters."""
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where PyYAML has it: ten times as fast
_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")


class Unreadable(Refused):
    """line: the first one that is wrong, if that is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message, hint="correct the file, or take another one")
        self.line = line


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """A file's content. Raises: OSError, Unreadable for more than `most` bytes."""
    with path.open("rb") as file:
        return within(file.read(most + 1), most)


def within(data: bytes, most: int = MOST_BYTES) -> bytes:
    """`data`. Raises: Unreadable for more than `most` bytes."""
    if len(data) > most:
        raise Unreadable(f"it has more than {most:,} bytes")
    return data


def read_yaml(text: str) -> Any:
    """The one document in a text. Raises: Unreadable."""
    _check_yaml(text)
    try:
        return yaml.load(text, _LOADER)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise _unreadable(error) from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:  # 2026-13-45, or a list as a key
        raise Unreadable(f"it has a value that is none: {error}") from error


def compose_yaml(text: str) -> list[yaml.Node]:
    """The documents in a text, as nodes that know their lines. Raises: Unreadable."""
    _check_yaml(text)
    try:
        return [node for node in yaml.compose_all(text, Loader=_LOADER) if node is not None]
    except yaml.YAMLError as error:
        raise _unreadable(error) from error


def read_json(data: str | bytes, most: int = MOST_BYTES) -> Any:
    """Raises: Unreadable."""
    try:
        text = within(data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass"), most).decode()
        depth = 0
        for bracket in _BRACKET.finditer(_STRING.sub("", text)):
            depth += 1 if bracket[0] in "[{" else -1
            if depth > MOST_DEPTH:
                raise Unreadable(f"it is nested more than {MOST_DEPTH} deep")
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg}", error.lineno) from error
    except (ValueError, RecursionError) as error:  # no UTF-8, or a number of thousands of digits
        raise Unreadable(f"not JSON: {error}") from error


def read_csv(text: str, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The rows, each with the number of its first line. A row with a cell of more than MOST_CELL characters is left
    out."""
    reader = csv.reader(io.StringIO(text.replace("\0", ""), newline=""), delimiter=separator, skipinitialspace=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            continue
        if all(len(cell) <= MOST_CELL for cell in cells):
            yield line, cells


def _check_yaml(text: str) -> None:
    """Raises: Unreadable for what is no YAML, or would not fit into a tree of bounded size."""
    within(text.encode("utf-8", "surrogatepass"))
    open_: list[list[Any]] = []  # of each collection that is open: its anchor, its nodes, its height
    known: dict[str, tuple[int, int]] = {}
    total = 0
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            line = event.start_mark.line + 1 if event.start_mark is not None else None
            if isinstance(event, yaml.DocumentStartEvent):
                known, total = {}, 0
                continue
            if isinstance(event, yaml.CollectionStartEvent):
                open_.append([event.anchor, 1, 1])
                nodes, height = 0, 0
                total += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, nodes, height = open_.pop()
                if anchor is not None:
                    known[anchor] = nodes, height
            elif isinstance(event, yaml.AliasEvent):
                if any(each[0] == event.anchor for each in open_):
                    raise Unreadable(f"the alias *{event.anchor} is a part of what it stands for", line)
                nodes, height = known.get(event.anchor or "", (1, 1))
                total += nodes
            elif isinstance(event, yaml.ScalarEvent):
                nodes, height = 1, 1
                total += 1
                if event.anchor is not None:
                    known[event.anchor] = nodes, height
            else:
                continue
            if len(open_) + height > MOST_DEPTH:
                raise Unreadable(f"it is nested more than {MOST_DEPTH} deep", line)
            if total > MOST_NODES:
                raise Unreadable(f"it has more than {MOST_NODES:,} values, counting what aliases stand for", line)
            if open_ and not isinstance(event, yaml.CollectionStartEvent):
                open_[-1][1] += nodes
                open_[-1][2] = max(open_[-1][2], height + 1)
    except yaml.YAMLError as error:
        raise _unreadable(error) from error


def _unreadable(error: yaml.YAMLError) -> Unreadable:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark
        return Unreadable(f"not YAML: {error.problem}", mark.line + 1 if mark is not None else None)
    return Unreadable(f"not YAML: {str(error).splitlines()[0] if str(error) else 'it cannot be read'}")
