"""JSON Patch (RFC 6902) that hangs on what it changes and relies on; a resourceVersion hangs on the whole object.

A Node is written by many: one whose machine writes it without pause would keep everybody else's writes in conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

UID: Final = "/metadata/uid"

Operation = dict[str, Any]


def pointer(*keys: str) -> str:
    """The JSON pointer (RFC 6901) to what is at these keys, one inside the other."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def operations(body: Mapping[str, Any], changes: Mapping[str, Any], relies_on: Iterable[str]) -> list[Operation]:
    """What makes `changes` (by pointer; None takes away) to the object that was read as `body`.

    It applies only to that object, and only while what is changed and what is at `relies_on` are as in `body`. All
    pointers lead through objects, none into a list.
    """
    found = {path: _find(body, path) for path in (UID, *relies_on, *changes)}
    writes: list[Operation] = []
    made: set[str] = set()
    for path, wanted in changes.items():
        seen, value = found[path]
        if wanted is not None:
            missing = [p for p in _above(path) if p.startswith(seen) and p not in made]
            writes += [{"op": "add", "path": each, "value": {}} for each in missing]
            made.update(missing)
            writes.append({"op": "add", "path": path, "value": wanted})
        elif value is not None:
            writes.append({"op": "remove", "path": path})
    # A test for null is one for nothing, if there is an object that could have it.
    return [*({"op": "test", "path": path, "value": value} for path, value in dict(found.values()).items()), *writes]


def _find(body: Mapping[str, Any], path: str) -> tuple[str, Any]:
    """What is at `path`; None, and the first part of the path that is not there, if nothing is."""
    value: Any = body
    for part in (*_above(path), path):
        key = part.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
        value = value.get(key)
        if value is None:
            return part, None
    return path, value


def _above(path: str) -> list[str]:
    """The pointers to what `path` is in, the outermost first."""
    keys = path.split("/")[1:-1]
    return ["/" + "/".join(keys[: count + 1]) for count in range(len(keys))]
