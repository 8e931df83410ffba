"""TOML tables of a recipe: read with types, joined with those that they extend, and nothing in them left unread."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.api.machinery.errors import NeedsHuman, NotFound


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
        return tuple(RecipeGroup(table.reason(why), table.texts(names)) for table in self.tables(key))

    def enabled_units(self) -> tuple[tuple[str, RecipeGroup], ...]:
        """The tables `[[enable]]`: units by the target that starts them, with their purpose."""
        tables = self.tables("enable")
        return tuple((each.text("target"), RecipeGroup(each.reason("purpose"), each.texts("units"))) for each in tables)

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
