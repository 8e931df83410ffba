"""A JSON answer of a backend read as it comes: what is not kept of it takes no memory, whatever its size, and no piece
keeps the interpreter from other threads for long (`turns`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, TypeVar

from provisioner.outbound.turns import Turn

T = TypeVar("T")

PIECE_BYTES: Final = (2 * 1024, 16 * 1024, 128 * 1024, 1024 * 1024)
"""A value is looked for in so much; one that is larger is refused, or left out of the object that it is in. The first
is small, as most values are."""
PIECE_VALUES: Final = 128 * 1024
"""In the largest piece. Slurm's densest, the cores that a job has, are nine bytes for each."""
MAX_ITEMS: Final = 100_000
"""Of the list. A job of Slurm has 5 to 10 KiB, a node 3."""

_DECODER: Final = json.JSONDecoder()
_BLANK: Final = re.compile(rb"[ \t\r\n]*")
_NO_BRACKET: Final = re.compile(rb'(?:[^"\[\]{}]+|"[^"\\]*(?:\\.[^"\\]*)*")*', re.DOTALL)
_SCALAR: Final = re.compile(rb"[^,\]}]*")


def values_in(body: bytes) -> int:
    """At least as many values as a JSON text has, but for its first: what stands in strings counts, too."""
    return sum(map(body.count, (b",", b"[", b"{")))


def read_object(
    parts: Iterable[bytes],
    key: str,
    keep: Callable[[str | None, Any], T],
    *,
    beside: Collection[str] = (),
    turn: Turn | None = None,
) -> tuple[dict[str, Any], list[T] | None]:
    """Of the object that `parts` make up: its members `beside`, and what `keep` makes of each value at `key`.

    `keep` gets None and each item of a list, or each name and value of an object; the result is None where there is
    neither. An object that is too large comes without the lists and objects in it that make it so. Bytes that are no
    UTF-8 stand in strings as surrogates. All but what is kept is skipped, unchecked.
    Raises: ValueError if it is no object, nested without end, or a value of it too large; what `keep` and `turn` raise.
    """
    reader, rest = _Reader(iter(parts).__next__, turn or Turn()), dict[str, Any]()
    kept: list[T] | None = None
    first = True
    with reader.turn:
        reader.expect(b"{")
        while reader.goes_on(b"}", first=first):
            first = False
            name = reader.name()
            if name == key and reader.next() in (b"[", b"{"):
                kept = reader.each(keep)
            elif name in beside:
                rest[name] = reader.value()
            else:
                reader.skip()
    return rest, kept


class _TooLarge(ValueError):
    """A value that is not taken in one piece. Where we are is before it still."""


class _Reader:
    """Where in the answer we are. `more`: its next part; StopIteration at its end."""

    def __init__(self, more: Callable[[], bytes], turn: Turn) -> None:
        self._more, self.turn = more, turn
        self._buffer, self._at, self._before = b"", 0, 0
        self._ended = False

    def each(self, keep: Callable[[str | None, Any], T]) -> list[T]:
        named = self.next() == b"{"
        kept: list[T] = []
        self._at += 1
        while self.goes_on(b"}" if named else b"]", first=not kept):
            if len(kept) == MAX_ITEMS:
                raise ValueError(f"more than {MAX_ITEMS} values in one list")
            kept.append(keep(self.name() if named else None, self.item()))
        return kept

    def item(self) -> Any:
        """A value; of an object that is too large without those lists and objects in it that make it so."""
        try:
            return self.value()
        except _TooLarge:
            if self.next() != b"{":
                raise
        found: dict[str, Any] = {}
        kept_bytes, first = 0, True
        self._at += 1
        while self.goes_on(b"}", first=first):
            first = False
            name, begin = self.name(), self._before + self._at
            try:
                found[name] = self.value()
            except _TooLarge:
                if self.next() not in (b"[", b"{"):
                    raise
                self.skip()
                continue
            kept_bytes += self._before + self._at - begin
            if kept_bytes > PIECE_BYTES[-1]:
                raise ValueError(f"one value has more than {PIECE_BYTES[-1]} bytes, at {self._place()}")
        return found

    def goes_on(self, end: bytes, *, first: bool) -> bool:
        """Go to the next member, or past the end, of what has begun."""
        self.turn.step()
        if self.next() == end:
            self._at += 1
            return False
        if not first:
            self.expect(b",")
        return True

    def name(self) -> str:
        name = self.value()
        self.expect(b":")
        return str(name)

    def next(self) -> bytes:
        """The next byte that is no blank; nothing at the end."""
        while True:
            found = _BLANK.match(self._buffer, self._at)
            self._at = found.end() if found is not None else self._at
            if self._at < len(self._buffer) or not self._fill(1):
                return self._buffer[self._at : self._at + 1]

    def expect(self, character: bytes) -> None:
        if self.next() != character:
            raise ValueError(f"{self._buffer[self._at : self._at + 20]!r} at {self._place()}, expected {character!r}")
        self._at += 1

    def value(self) -> Any:
        self.next()
        for size in PIECE_BYTES:
            self._fill(size)
            piece = self._buffer[self._at : self._at + size]
            whole = self._ended and self._at + size >= len(self._buffer)
            if values_in(piece) > PIECE_VALUES:
                raise _TooLarge(f"more than {PIECE_VALUES} values in one, at {self._place()}")
            text = piece.decode(errors="surrogateescape")
            try:
                value, end = _DECODER.raw_decode(text)
            except RecursionError as error:
                raise ValueError(f"nested without end, at {self._place()}") from error
            except ValueError:
                if whole:
                    raise
                continue
            if end < len(text) or whole:  # else it may be the first digits of a number
                self._at += end if text.isascii() else len(text[:end].encode(errors="surrogateescape"))
                return value
        raise _TooLarge(f"one value has more than {PIECE_BYTES[-1]} bytes, or is none, at {self._place()}")

    def skip(self) -> None:
        """Go past a value of any size, by its brackets."""
        if self.next() == b'"':
            self.value()
            return
        if self.next() not in (b"[", b"{"):
            self._fill(PIECE_BYTES[0])
            found = _SCALAR.match(self._buffer, self._at)
            self._at = found.end() if found is not None else self._at
            return
        depth = 0
        while True:
            found = _NO_BRACKET.match(self._buffer, self._at)
            self._at = found.end() if found is not None else self._at
            following = self._buffer[self._at : self._at + 1]
            if following in (b"", b'"'):  # the end of what has come, perhaps within a string
                had = len(self._buffer) - self._at
                if had > PIECE_BYTES[-1] or not self._fill(had + 1):
                    raise ValueError(f"a string without end, or nothing, at {self._place()}")
                continue
            self._at += 1
            depth += 1 if following in b"[{" else -1
            if depth == 0:
                return
            self.turn.step()

    def _fill(self, size: int) -> bool:
        """Have so much at hand; whether there is."""
        while len(self._buffer) - self._at < size and not self._ended:
            self.turn.__exit__()
            try:
                part = self._more()
            except StopIteration:
                self._ended = True
                part = b""
            finally:
                self.turn.__enter__()
            self._before += self._at
            self._buffer, self._at = self._buffer[self._at :] + part, 0
        return len(self._buffer) - self._at >= size

    def _place(self) -> str:
        return f"byte {self._before + self._at}"
