"""Recipes are data: `images/<name>/recipe.toml`; beside it `tree/`, which goes into the root, and `stage1/`.

A recipe that `extends` another folder adds to what is there: to each list, to each table, and its files to the trees.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from provisioner.api.errors import NeedsHuman, NotFound
from provisioner.api.server import Architecture


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """Where the packages come from.

    `kernel` is the package that follows the current kernel; of what it depends on, only packages whose name matches the
    regular expressions `kernel_packages` are unpacked (not its firmware, not a generator of initramfs images).
    """

    name: str
    identifier: str
    suite: str
    update_suites: tuple[str, ...]
    components: tuple[str, ...]
    keyring: str
    architectures: Mapping[str, str]
    kernel: Mapping[str, str]
    kernel_packages: tuple[str, ...]
    packages: tuple[str, ...]
    stage1_packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RootRecipe:
    """The system: what is installed, what is taken out again, and what starts.

    `agents` are the packages of Python below `provisioner/` that run in it, such as `network/agent`.
    """

    packages: tuple[str, ...]
    remove: tuple[str, ...]
    build_only: tuple[str, ...]
    modules: tuple[str, ...]
    agents: tuple[str, ...]
    enable: Mapping[str, tuple[str, ...]]
    mask: tuple[str, ...]
    default_target: str


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One kind of image. `folders`: where it is made of, what is extended first."""

    folders: tuple[Path, ...]
    name: str
    description: str
    default_distribution: str
    source_date_epoch: int
    kernel_arguments: tuple[str, ...]
    distributions: Mapping[str, Distribution]
    root: RootRecipe
    stage1_modules: tuple[str, ...]
    squashfs_level: int
    squashfs_block_bytes: int
    squashfs_merge: bool = False
    """Whether all layers are packed into one: a change of one is then fetched with all others."""

    @property
    def trees(self) -> tuple[Path, ...]:
        """What goes into the root; a file of a later one replaces that of an earlier one."""
        return tuple(folder / "tree" for folder in self.folders if (folder / "tree").is_dir())

    @property
    def stage1_trees(self) -> tuple[Path, ...]:
        """What goes into stage-1, alike."""
        return tuple(folder / "stage1" for folder in self.folders if (folder / "stage1").is_dir())

    def distribution(self, name: str | None, architecture: Architecture) -> Distribution:
        """The distribution of that name (the recipe's default if None). Raises: NotFound if the recipe lacks it."""
        wanted = name or self.default_distribution
        if wanted not in self.distributions:
            raise NotFound(
                f"recipe {self.name!r} has no distribution {wanted!r}",
                hint=f"use one of {', '.join(self.distributions)}",
            )
        found = self.distributions[wanted]
        if architecture not in found.architectures:
            raise NotFound(
                f"distribution {wanted!r} of recipe {self.name!r} has no architecture {architecture!r}",
                hint=f"use one of {', '.join(found.architectures)}",
            )
        return found


def read_recipe(folder: Path) -> Recipe:
    """Read `folder/recipe.toml`. Raises: NotFound without the file; NeedsHuman with the key that is wrong."""
    return parse_recipe(*read_data(folder))


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


def parse_recipe(folders: tuple[Path, ...], data: Mapping[str, Any]) -> Recipe:
    """A recipe from its parsed TOML. Raises: NeedsHuman naming a key that is missing, unknown or of another type."""
    top = _Table(data, str(folders[-1] / "recipe.toml"))
    root, stage1, squashfs = top.table("root"), top.table("stage1"), top.table("squashfs")
    distributions = top.table("distribution")
    recipe = Recipe(
        folders=folders,
        name=top.text("name"),
        description=top.text("description"),
        default_distribution=top.text("default-distribution"),
        source_date_epoch=top.number("source-date-epoch"),
        kernel_arguments=top.texts("kernel-arguments"),
        distributions={name: _distribution(name, distributions.table(name)) for name in distributions.data},
        root=RootRecipe(
            packages=root.texts("packages"),
            remove=root.texts("remove"),
            build_only=root.texts("build-only"),
            modules=root.texts("modules"),
            agents=root.texts("agents"),
            enable=root.lists("enable"),
            mask=root.texts("mask"),
            default_target=root.text("default-target"),
        ),
        stage1_modules=stage1.texts("modules"),
        squashfs_level=squashfs.number("level"),
        squashfs_block_bytes=squashfs.number("block-bytes"),
        squashfs_merge=squashfs.flag("merge"),
    )
    for table in (top, root, stage1, squashfs):
        table.must_be_read()
    return recipe


def _distribution(name: str, table: _Table) -> Distribution:
    distribution = Distribution(
        name=name,
        identifier=table.text("identifier"),
        suite=table.text("suite"),
        update_suites=table.texts("update-suites"),
        components=table.texts("components"),
        keyring=table.text("keyring"),
        architectures=table.strings("architectures"),
        kernel=table.strings("kernel"),
        kernel_packages=table.texts("kernel-packages"),
        packages=table.texts("packages"),
        stage1_packages=table.texts("stage1-packages"),
    )
    unknown = set(distribution.architectures) - set(get_args(Architecture))
    if unknown:
        raise NeedsHuman(f"{table.path}: architecture {unknown} is unknown", hint=f"use {get_args(Architecture)}")
    table.must_be_read()
    return distribution


class _Table:
    """One TOML table: typed reads, and the names of what nobody read (a misspelt key would do nothing in silence)."""

    def __init__(self, data: Mapping[str, Any], path: str) -> None:
        self.data = data
        self.path = path
        self._read: set[str] = set()

    def _take(self, key: str, type_: type, words: str) -> Any:
        self._read.add(key)
        value = self.data.get(key)
        if not isinstance(value, type_) or isinstance(value, bool):
            raise NeedsHuman(f"{self.path}: {key} is {value!r}", hint=f"make it {words}")
        return value

    def text(self, key: str) -> str:
        return str(self._take(key, str, "a string"))

    def number(self, key: str) -> int:
        return int(self._take(key, int, "a whole number"))

    def flag(self, key: str) -> bool:
        """False if it is absent."""
        self._read.add(key)
        value = self.data.get(key, False)
        if not isinstance(value, bool):
            raise NeedsHuman(f"{self.path}: {key} is {value!r}", hint="make it true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self._take(key, list, "a list of strings")
        if not all(isinstance(value, str) for value in values):
            raise NeedsHuman(f"{self.path}: {key} is {values!r}", hint="make it a list of strings")
        return tuple(values)

    def table(self, key: str) -> _Table:
        return _Table(self._take(key, dict, "a table"), f"{self.path}: {key}")

    def strings(self, key: str) -> dict[str, str]:
        inner = self.table(key)
        return {name: inner.text(name) for name in inner.data}

    def lists(self, key: str) -> dict[str, tuple[str, ...]]:
        inner = self.table(key)
        return {name: inner.texts(name) for name in inner.data}

    def must_be_read(self) -> None:
        unknown = sorted(set(self.data) - self._read)
        if unknown:
            raise NeedsHuman(f"{self.path}: unknown key {', '.join(unknown)}", hint="remove or correct it")
