"""TOML tables of a recipe: read with types, joined with those that they extend, and nothing in them left unread."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeVar, get_type_hints

from provisioner.api.machinery.errors import NeedsHuman, NotFound


class _Table(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T", bound=_Table)


@dataclass(frozen=True)
class RecipeGroup:
    """Things that a recipe names together, and why they are there (or are taken out): never empty words."""

    why: str
    names: tuple[str, ...]


def names_of(groups: tuple[RecipeGroup, ...]) -> tuple[str, ...]:
    """All names of the groups, in their order."""
    return tuple(name for group in groups for name in group.names)


def read_data(folder: Path) -> tuple[tuple[Path, ...], dict[str, Any]]:
    """The parsed TOML of a recipe with what it extends, and the folders that it came from, the extended ones first.

    Raises: NotFound without a file; NeedsHuman if one is not TOML, or extends itself.
    """
    folders: list[Path] = []
    data: dict[str, Any] = {}
    following: Path | None = folder
    while following is not None:
        if following in folders:
            raise NeedsHuman(f"recipe {folder} extends itself", hint="correct `extends`")
        folders.insert(0, following)
        own = _read_toml(following)
        extended = own.pop("extends", None)
        data = _merged(own, data)
        following = None
        if extended is not None:
            if not isinstance(extended, str):
                raise NeedsHuman(f"{folders[0]}: extends is {extended!r}", hint="make it a folder, such as ../node")
            following = Path(os.path.normpath(folders[0] / extended))
    return tuple(folders), data


def _read_toml(folder: Path) -> dict[str, Any]:
    file = folder / "recipe.toml"
    try:
        return tomllib.loads(file.read_text())
    except FileNotFoundError as error:
        raise NotFound(
            f"no recipe in {folder}: {file} does not exist", hint="name a folder such as images/gpu-node"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise NeedsHuman(f"recipe {file} is not TOML: {error}", hint="correct the file") from error


def _merged(extended: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Tables key by key, lists one behind the other; of anything else, or of two types, the own one."""
    merged = {**extended, **own}
    for key in extended.keys() & own.keys():
        first, second = extended[key], own[key]
        if isinstance(first, dict) and isinstance(second, dict):
            merged[key] = _merged(first, second)
        elif isinstance(first, list) and isinstance(second, list):
            merged[key] = [*first, *second]
    return merged


class TomlTable:
    """One TOML table: typed reads, and the names of what nobody read (a misspelt key would do nothing in silence)."""

    def __init__(self, data: Mapping[str, Any], path: str) -> None:
        self.data = data
        self.path = path
        self._read: set[str] = set()
        self._inner: list[TomlTable] = []

    def _take(self, key: str, type_: type, words: str) -> Any:
        self._read.add(key)
        value = self.data.get(key)
        if not isinstance(value, type_) or (isinstance(value, bool) and type_ is not bool):
            raise NeedsHuman(f"{self.path}: {key} is {value!r}", hint=f"make it {words}")
        return value

    def text(self, key: str) -> str:
        return str(self._take(key, str, "a string"))

    def number(self, key: str) -> int:
        return int(self._take(key, int, "a whole number"))

    def flag(self, key: str) -> bool:
        return bool(self._take(key, bool, "true or false"))

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._take(key, list, "a list of strings")
        if not all(isinstance(value, str) for value in values):
            raise NeedsHuman(f"{self.path}: {key} is {values!r}", hint="make it a list of strings")
        return tuple(values)

    def table(self, key: str) -> TomlTable:
        inner = TomlTable(self._take(key, dict, "a table"), f"{self.path}: {key}")
        self._inner.append(inner)
        return inner

    def tables(self, key: str) -> tuple[TomlTable, ...]:
        """The tables `[[key]]`; none if there is no such key."""
        if key not in self.data:
            return ()
        values = self._take(key, list, f"a list of tables, each under [[…{key}]]")
        if not all(isinstance(value, dict) for value in values):
            raise NeedsHuman(
                f"{self.path}: {key} is {values!r}", hint=f"make it a list of tables, each under [[…{key}]]"
            )
        inner = tuple(TomlTable(value, f"{self.path}: {key}[{number}]") for number, value in enumerate(values))
        self._inner.extend(inner)
        return inner

    def groups(self, key: str, why: str, names: str) -> tuple[RecipeGroup, ...]:
        """The tables `[[key]]`, each with the words `why` and the list `names`."""
        return tuple(table.group(why, names) for table in self.tables(key))

    def group(self, why: str, names: str) -> RecipeGroup:
        return RecipeGroup(self.reason(why), self.texts(names))

    def read(self, kind: type[T], **known: Any) -> T:
        """A dataclass: what is `known`, the other fields by their metadata (`listed`) or types.

        The key of a field is its name, with `-` for `_`; one that is called `reason` has words for a person.
        """
        types = get_type_hints(kind) | {"reason": "reason"}
        for field in fields(kind):
            if field.name not in known:
                read = field.metadata.get(_READ) or _READERS[types[field.name]]
                known[field.name] = read(self, field.name.replace("_", "-"))
        return kind(**known)

    def reason(self, key: str) -> str:
        """Words for a person. Raises: NeedsHuman if they are empty, as what nobody can give a reason for has none."""
        words = self.text(key)
        if not words.strip():
            raise NeedsHuman(f"{self.path}: {key} is empty", hint="say why, in a few words")
        return words

    def strings(self, key: str) -> dict[str, str]:
        inner = self.table(key)
        return {name: inner.text(name) for name in inner.data}

    def must_be_read(self) -> None:
        """Raises: NeedsHuman naming what nobody asked for, here and in all tables below."""
        unknown = sorted(set(self.data) - self._read)
        if unknown:
            raise NeedsHuman(f"{self.path}: unknown key {', '.join(unknown)}", hint="remove or correct it")
        for inner in self._inner:
            inner.must_be_read()


_READ: Final = "read"
_READERS: Final[Mapping[object, Callable[[TomlTable, str], Any]]] = {
    "reason": TomlTable.reason,
    str: TomlTable.text,
    int: TomlTable.number,
    bool: TomlTable.flag,
    tuple[str, ...]: TomlTable.texts,
    Mapping[str, str]: TomlTable.strings,
}


def listed(read: Callable[[TomlTable], Any], key: str | None = None) -> dict[str, Any]:
    """Metadata of a field: what `read` makes of each of the tables `[[key]]`, or of those of the field's own key."""
    return {_READ: lambda table, own: tuple(read(each) for each in table.tables(key or own))}


def recorded(kind: type[T]) -> dict[str, Any]:
    """Metadata of a field of dataclasses: a `kind` of each of the tables `[[key]]`."""
    return listed(lambda table: table.read(kind))


def grouped(why: str, names: str, key: str | None = None) -> dict[str, Any]:
    """Metadata of a field of groups: tables `[[key]]`, each with the words `why` and the list `names`."""
    return listed(lambda table: table.group(why, names), key)


def enabled_units(table: TomlTable) -> tuple[str, RecipeGroup]:
    """A target, and the units that start with it."""
    return table.text("target"), table.group("purpose", "units")
