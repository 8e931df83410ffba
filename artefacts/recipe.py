"""What a container image is made of, as its file in packaging/containers says."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from provisioner.api.machinery.errors import Refused

Machine = Literal["amd64", "arm64"]
"""Architectures as containers and Debian name them."""
MACHINES: Final[tuple[Machine, ...]] = ("amd64", "arm64")

_LISTS: Final = {"debian": ("packages", "take", "leave"), "wheels": ("without", "leave")}


@dataclass(frozen=True, kw_only=True)
class ContainerRecipe:
    """One image.

    take, leave: patterns of files of Debian's packages, relative to the root; what both match is left. without: wheels
    that are not unpacked. leave_of_wheels: patterns of files of those that are. files: texts by path. folders: modes,
    octal, by path.
    """

    name: str
    description: str
    user: str
    suite: str
    python: str
    packages: tuple[str, ...]
    take: tuple[str, ...]
    leave: tuple[str, ...]
    without: tuple[str, ...]
    leave_of_wheels: tuple[str, ...]
    environment: Mapping[str, str]
    folders: Mapping[str, int]
    files: Mapping[str, str]


def read_recipe(file: Path) -> ContainerRecipe:
    """Raises: Refused if it lacks a value, or has one that is not known."""
    loaded = _load(file)
    debian, wheels = loaded.pop("debian", {}), loaded.pop("wheels", {})
    try:
        recipe = ContainerRecipe(
            name=loaded.pop("name"),
            description=loaded.pop("description"),
            user=loaded.pop("user"),
            suite=debian.pop("suite"),
            python=debian.pop("python"),
            packages=tuple(sorted(debian.pop("packages"))),
            take=tuple(debian.pop("take")),
            leave=tuple(debian.pop("leave")),
            without=tuple(wheels.pop("without")),
            leave_of_wheels=tuple(wheels.pop("leave")),
            environment=loaded.pop("environment"),
            folders={path: int(mode, 8) for path, mode in loaded.pop("folders").items()},
            files={path: text.lstrip("\n") for path, text in loaded.pop("files").items()},
        )
    except KeyError as error:
        raise Refused(
            f"recipe {file} lacks {error}", hint="compare it with packaging/containers/provisioner.toml"
        ) from error
    if unknown := [*loaded, *debian, *wheels]:
        raise Refused(f"recipe {file} has {unknown[0]!r}, which nothing reads", hint="is it misspelt?")
    return recipe


def _load(file: Path) -> dict[str, Any]:
    """With what it extends: lists are joined, tables merged, and the rest is its own."""
    own = tomllib.loads(file.read_text())
    if (base := own.pop("extends", None)) is None:
        return own
    merged = _load(file.parent / base)
    for key, value in own.items():
        if not isinstance(value, dict):
            merged[key] = value
            continue
        table = merged.setdefault(key, {})
        for name, inner in value.items():
            table[name] = [*table.get(name, ()), *inner] if name in _LISTS.get(key, ()) else inner
    return merged
