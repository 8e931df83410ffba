"""Server-side apply for FakeCluster: who owns which fields, and what becomes of them.

After structured-merge-diff: a field is owned by path; items of a list with map keys by their keys; atomic lists whole.
What a manager applied before and says no more is removed unless another one owns it or something below it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.cluster.fake_schema import Schema, child

Path = tuple[Any, ...]
Paths = dict[Path, Any]
"""By path the value; None for objects and items, whose parts have paths of their own."""
Writer = tuple[str, str, str]
"""Manager, operation (Apply or Update), subresource."""


def copy_json(value: Any) -> Any:
    """A deep copy, several times faster than copy.deepcopy."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy_json(item) for item in value]
    return value


def _list_type(schema: Schema) -> str:
    return str(schema.get("x-kubernetes-list-type", "atomic"))


def _key_of(schema: Schema, item: Any) -> Path:
    return ("k", *((key, item.get(key)) for key in schema["x-kubernetes-list-map-keys"]))


def paths_of(schema: Schema, value: Any, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every path of `value`, parents before children."""
    kind = _list_type(schema)
    if isinstance(value, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        if at:
            yield at, None if value else {}
        for key, item in value.items():
            yield from paths_of(child(schema, key), item, (*at, key))
    elif isinstance(value, list) and kind == "map":
        yield at, None if value else []
        for item in value:
            yield from paths_of(schema.get("items") or {}, item, (*at, _key_of(schema, item)))
    elif isinstance(value, list) and kind == "set":
        yield at, None if value else []
        for item in value:
            yield (*at, ("v", item)), item
    else:
        yield at, value


def merge(schema: Schema, current: Any, applied: Any) -> Any:
    """`applied` laid over `current`."""
    kind = _list_type(schema)
    if isinstance(current, dict) and isinstance(applied, dict) and schema.get("x-kubernetes-map-type") != "atomic":
        merged = dict(current)
        for key, item in applied.items():
            merged[key] = merge(child(schema, key), current[key], item) if key in current else copy_json(item)
        return merged
    if isinstance(current, list) and isinstance(applied, list) and kind == "map":
        items = {_key_of(schema, item): item for item in current}
        for item in applied:
            key = _key_of(schema, item)
            items[key] = merge(schema.get("items") or {}, items[key], item) if key in items else copy_json(item)
        return list(items.values())
    if isinstance(current, list) and isinstance(applied, list) and kind == "set":
        return current + [item for item in applied if item not in current]
    return copy_json(applied)


def remove_path(schema: Schema, value: Any, path: Path, depth: int = 0) -> None:
    """Take what is at `path` out of `value`, in place; nothing happens if it is not there.

    What becomes empty by it is gone, too; a whole status that does becomes null, as it does at the API server.
    """
    head, rest = path[0], path[1:]
    if isinstance(value, dict):
        if head in value:
            if rest:
                remove_path(child(schema, head), value[head], rest, depth + 1)
            if not rest or value[head] in ({}, []):
                value.pop(head)
                if depth == 0 and head == "status":
                    value[head] = None
    elif isinstance(value, list):
        for index, item in enumerate(value):
            mark = ("v", item) if _list_type(schema) == "set" else _key_of(schema, item)
            if mark != head:
                continue
            if rest:
                remove_path(schema.get("items") or {}, item, rest, depth + 1)
            else:
                del value[index]
            return


class FakeOwnership:
    """Who owns what of one object."""

    def __init__(self) -> None:
        self._owned: dict[Writer, Paths] = {}

    def snapshot(self) -> dict[Writer, Paths]:
        """As it is now, for `restore`."""
        return {writer: dict(owned) for writer, owned in self._owned.items()}

    def restore(self, snapshot: dict[Writer, Paths]) -> None:
        self._owned = snapshot

    def conflicts(self, writer: Writer, schema: Schema, body: Any, current: Any) -> list[str]:
        """Fields of `body` that another manager owns with another value."""
        now = dict(paths_of(schema, current))
        found = []
        for path, value in paths_of(schema, body):
            if value is None or now.get(path) == value:
                continue
            found += [
                f"{other[0]}: {path}" for other, owned in self._owned.items() if other != writer and path in owned
            ]
        return found

    def apply(self, writer: Writer, schema: Schema, body: Any, current: Any) -> Any:
        """`current` after `writer` applied `body`, and the ownership moved along."""
        wanted = dict(paths_of(schema, body))
        now = dict(paths_of(schema, current))
        merged = merge(schema, current, body)
        before = self._owned.get(writer, {})
        for other, owned in self._owned.items():
            if other != writer:
                for path, value in wanted.items():
                    if value is not None and path in owned and now.get(path) != value:
                        del owned[path]
        for path in [path for path in before if path not in wanted]:
            if not self._is_owned_by_another(writer, path):
                remove_path(schema, merged, path)
        self._owned[writer] = wanted
        return merged

    def updated(self, writer: Writer, schema: Schema, before: Any, after: Any) -> None:
        """Somebody wrote by other means than apply: what changed is theirs now."""
        old, new = dict(paths_of(schema, before)), dict(paths_of(schema, after))
        mine = self._owned.setdefault(writer, {})
        for path in old.keys() - new.keys():
            for owned in self._owned.values():
                owned.pop(path, None)
        for path, value in new.items():
            if path in old and old[path] == value:
                continue
            if value is not None or path not in old:
                for owned in self._owned.values():
                    owned.pop(path, None)
                mine[path] = value

    def _is_owned_by_another(self, writer: Writer, path: Path) -> bool:
        depth = len(path)
        return any(
            owned_path[:depth] == path
            for other, owned in self._owned.items()
            if other != writer
            for owned_path in owned
        )
