"""The API server's JSON, decoded one object at a time: how many there are in an answer takes no memory.

An object has 1.5 MiB in etcd, up to 10 MiB as JSON, and many times that once it is decoded. Whoever may write one may
write hundreds. So of a list only the object that is being read is held, large ones are decoded by one thread of the
process at a time, and one that is larger than any may be is passed over.
"""

from __future__ import annotations

import codecs
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

import structlog

log = structlog.get_logger()

Object = dict[str, Any]

OBJECT_BYTES: Final = 16 * 1024 * 1024
"""An answer about one object, or one object of an answer about many."""
PAGE_BYTES: Final = 64 * 1024 * 1024
"""A page of a list; one that is larger is asked for in smaller ones."""
LIST_BYTES: Final = 1024 * 1024 * 1024
"""A list in one piece: the Pods of a large fleet."""
LARGE: Final = 256 * 1024
"""From this size on objects are decoded one at a time."""

_ONE_AT_A_TIME: Final = threading.Lock()
_DECODER: Final = json.JSONDecoder()
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NESTING: Final = re.compile(r'[{\[]|[}\]]|"(?:[^"\\]++|\\.)*+("?)', re.DOTALL)


def decoding(size: int) -> AbstractContextManager[object]:
    """Around the decoding of an object of this size, and what is done with the whole of it."""
    return _ONE_AT_A_TIME if size >= LARGE else nullcontext()


def read_list(parts: Iterator[bytes], take: Callable[[Object], object]) -> Object:
    """The list that comes in `parts`, without its items; each of these is given to `take`, which may change it.

    Raises: ValueError if it is no JSON object, or ends too soon.
    """
    return _ListReader(parts, take).read()


def decode_shallow(text: str, levels: int) -> Any:
    """JSON with null for every object and list below so many levels. Raises: ValueError if it is none."""
    kept, begin, depth = [], 0, 0
    for token in _NESTING.finditer(text):
        if token[0] in "{[":
            if depth == levels:
                kept += [text[begin : token.start()], "null"]
            depth += 1
        elif token[0] in "}]":
            depth -= 1
            if depth == levels:
                begin = token.end()
    return json.loads("".join([*kept, text[begin:]]))


def _give(value: Any, take: Callable[[Object], object]) -> None:
    try:
        take(value)
    except RecursionError:
        log.warning("object was left out", error="it is nested too deeply to be kept", begins=str(value)[:100])


class _ListReader:
    """A window on the text: what was read before is forgotten."""

    def __init__(self, parts: Iterator[bytes], take: Callable[[Object], object]) -> None:
        self._parts, self._take = parts, take
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at = "", 0

    def read(self) -> Object:
        answer: Object = {}
        self._expect("{")
        while self._next() != "}":
            key = self._value()
            self._expect(":")
            if key == "items" and self._next() == "[":
                self._items()
            else:
                answer[str(key)] = self._value()
            if self._next() == ",":
                self._at += 1
        return answer

    def _items(self) -> None:
        self._expect("[")
        while self._next() != "]":
            self._value(self._take)
            if self._next() == ",":
                self._at += 1
        self._at += 1

    def _value(self, take: Callable[[Object], object] = lambda value: None) -> Any:
        """The value that begins here. One that cannot be held is passed over; None."""
        self._next()
        while True:
            size = len(self._text) - self._at
            try:
                with decoding(size):
                    value, end = _DECODER.raw_decode(self._text, self._at)
                    if end < len(self._text):  # else it may go on: a number has no end of its own
                        self._at = end
                        _give(value, take)
                        return value
            except RecursionError:
                return self._pass_over("it is nested too deeply")
            except json.JSONDecodeError:
                pass
            if size > OBJECT_BYTES:
                return self._pass_over(f"it has more than {OBJECT_BYTES} bytes")
            self._more(size)

    def _pass_over(self, why: str) -> None:
        """Go to the end of the value without decoding it."""
        log.warning("object was left out", error=why, begins=self._text[self._at : self._at + 100])
        depth = 0
        while True:
            token = _NESTING.search(self._text, self._at)
            if token is None:
                self._at = len(self._text)
            elif token[0][0] == '"' and not token[1]:
                self._at = token.start()  # a string that goes on
            else:
                self._at = token.end()
                depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
                if depth == 0:
                    return
                continue
            self._more(len(self._text) - self._at)

    def _next(self) -> str:
        """The next character that is no space; it is not passed."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space is not None else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            self._more(1)

    def _expect(self, character: str) -> None:
        if (found := self._next()) != character:
            raise ValueError(f"expected {character!r}, found {self._text[self._at : self._at + 200]!r} ({found!r})")
        self._at += 1

    def _more(self, size: int) -> None:
        """Read on, by `size` at least: as much again as there is, lest a long value be tried with every part."""
        found, count = [self._text[self._at :]], 0
        self._text, self._at = "", 0
        while count < max(size, 1):
            part = next(self._parts, b"")
            found.append(self._utf8.decode(part, final=not part))
            count += len(part)
            if not part:
                break
        self._text = "".join(found)
        if not count:
            raise ValueError(f"ended too soon, after {self._text[-200:]!r}")
