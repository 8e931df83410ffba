"""A large JSON answer read piece by piece: what is not kept of it takes no memory, and no piece keeps the interpreter
from other threads for long.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

PIECE_BYTES: Final = (64 * 1024, 1024 * 1024)
"""A value, or an item of the list, is looked for in so much; one that is larger is refused."""

_DECODER: Final = json.JSONDecoder()
_BLANK: Final = re.compile(rb"[ \t\r\n]*")


def read_object(body: bytes, key: str, keep: Callable[[Any], T]) -> tuple[dict[str, Any], list[T] | None]:
    """The object in `body` without the list at `key`, and what `keep` makes of each item of that (None: no list there).

    Bytes that are no UTF-8 stand in strings as surrogates. Raises: ValueError if it is no object, nested without end,
    or a piece of it is too large.
    """
    rest: dict[str, Any] = {}
    kept: list[T] | None = None
    at = _expect(body, 0, b"{")
    if _next(body, at) == b"}":
        return rest, kept
    while True:
        name, at = _value(body, at)
        at = _expect(body, at, b":")
        if name == key and _next(body, at) == b"[":
            kept, at = _items(body, _expect(body, at, b"["), keep)
        else:
            rest[str(name)], at = _value(body, at)
        if _next(body, at) == b"}":
            return rest, kept
        at = _expect(body, at, b",")


def _items(body: bytes, at: int, keep: Callable[[Any], T]) -> tuple[list[T], int]:
    kept: list[T] = []
    while _next(body, at) != b"]":
        if kept:
            at = _expect(body, at, b",")
        item, at = _value(body, at)
        kept.append(keep(item))
    return kept, _expect(body, at, b"]")


def _value(body: bytes, at: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends."""
    begin = _skip(body, at)
    for size in PIECE_BYTES:
        piece = body[begin : begin + size].decode(errors="surrogateescape")
        try:
            value, end = _DECODER.raw_decode(piece)
        except RecursionError as error:
            raise ValueError(f"nested without end at byte {begin}") from error
        except ValueError:
            if begin + size >= len(body):
                raise
            continue
        return value, begin + (end if piece.isascii() else len(piece[:end].encode(errors="surrogateescape")))
    raise ValueError(f"one value has more than {PIECE_BYTES[-1]} bytes, or is none, at byte {begin}")


def _next(body: bytes, at: int) -> bytes:
    begin = _skip(body, at)
    return body[begin : begin + 1]


def _expect(body: bytes, at: int, character: bytes) -> int:
    begin = _skip(body, at)
    if body[begin : begin + 1] != character:
        raise ValueError(f"{body[begin : begin + 20]!r} at byte {begin}, expected {character!r}")
    return begin + 1


def _skip(body: bytes, at: int) -> int:
    found = _BLANK.match(body, at)
    return found.end() if found is not None else at
