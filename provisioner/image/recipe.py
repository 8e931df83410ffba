"""Recipes are data: `images/<name>/recipe.toml`; beside it `tree/`, which goes into the root, `stage1/`, and `driver/`.

A recipe that `extends` another folder adds to what is there: to each list, to each table, and its files to the trees.
What is installed, kept or taken out stands with its purpose or reason, which `image diff` and the docs can show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from provisioner.api.machinery.errors import NeedsHuman, NotFound
from provisioner.api.servers.server import Architecture
from provisioner.image.driver_recipe import DriverRecipe as DriverRecipe
from provisioner.image.driver_recipe import parse_driver
from provisioner.image.gates.recipe import GateRules as GateRules
from provisioner.image.tools.tables import RecipeGroup as Group
from provisioner.image.tools.tables import TomlTable, enabled_units, grouped, listed, names_of
from provisioner.image.tools.tables import read_data as read_data


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
    install: tuple[Group, ...] = field(metadata=grouped("purpose", "packages"))
    stage1_install: tuple[Group, ...] = field(metadata=grouped("purpose", "packages"))

    @property
    def packages(self) -> tuple[str, ...]:
        return names_of(self.install)

    @property
    def stage1_packages(self) -> tuple[str, ...]:
        return names_of(self.stage1_install)


@dataclass(frozen=True, kw_only=True)
class RootRecipe:
    """The system: what is installed, what is taken out again, and what starts. Names and patterns, with the reasons.

    `keep` wins over `drop`, so that a recipe can keep what the one that it extends takes out.
    """

    install: tuple[Group, ...] = field(metadata=grouped("purpose", "packages"))
    drop: tuple[Group, ...] = field(metadata=grouped("reason", "paths"))
    """Patterns of paths below the root; a folder goes with all that is in it."""
    keep: tuple[Group, ...] = field(metadata=grouped("reason", "paths"))
    build_only: tuple[Group, ...] = field(metadata=grouped("reason", "paths"))
    """Patterns of paths that stay in the base for checks of the build, and are left out of the root."""
    kernel_modules: tuple[Group, ...] = field(metadata=grouped("purpose", "names", "modules"))
    agents: tuple[Group, ...] = field(metadata=grouped("purpose", "names"))
    """Packages of Python below `provisioner/` that run in the root, such as `network/agent`."""
    enable: tuple[tuple[str, Group], ...] = field(metadata=listed(enabled_units))
    """Units by the target that starts them."""
    mask: tuple[Group, ...] = field(metadata=grouped("reason", "units"))
    default_target: str

    @property
    def packages(self) -> tuple[str, ...]:
        return names_of(self.install)

    @property
    def modules(self) -> tuple[str, ...]:
        """Patterns of names of kernel modules; what they depend on comes with them."""
        return names_of(self.kernel_modules)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One kind of image. `folders`: what it is made of, what is extended first. `driver`: None without a GPU driver."""

    folders: tuple[Path, ...]
    name: str
    description: str
    default_distribution: str
    source_date_epoch: int
    arguments: tuple[Group, ...]
    distributions: Mapping[str, Distribution]
    root: RootRecipe
    driver: DriverRecipe | None
    gates: GateRules
    stage1: tuple[Group, ...]
    squashfs_level: int
    squashfs_block_bytes: int
    squashfs_merge: bool
    """Whether all layers are packed into one squashfs after all."""

    @property
    def kernel_arguments(self) -> tuple[str, ...]:
        return names_of(self.arguments)

    @property
    def stage1_modules(self) -> tuple[str, ...]:
        """Patterns of names of the kernel modules that stage-1 has."""
        return names_of(self.stage1)

    def trees(self, kind: str) -> tuple[Path, ...]:
        """What goes into the root (`tree`), stage-1 (`stage1`), or the driver's layer beside the driver (`driver`).

        A file of a later one replaces that of an earlier one.
        """
        return tuple(folder / kind for folder in self.folders if (folder / kind).is_dir())

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


def parse_recipe(folders: tuple[Path, ...], data: Mapping[str, Any]) -> Recipe:
    """A recipe from its parsed TOML. Raises: NeedsHuman naming a key that is missing, unknown or of another type."""
    top = TomlTable(data, str(folders[-1] / "recipe.toml"))
    stage1, squashfs, distributions = top.table("stage1"), top.table("squashfs"), top.table("distribution")
    recipe = Recipe(
        folders=folders,
        name=top.text("name"),
        description=top.text("description"),
        default_distribution=top.text("default-distribution"),
        source_date_epoch=top.number("source-date-epoch"),
        arguments=top.groups("kernel-arguments", "reason", "arguments"),
        distributions={name: _distribution(name, distributions.table(name)) for name in distributions.data},
        root=top.table("root").read(RootRecipe),
        driver=parse_driver(top.table("driver")) if "driver" in data else None,
        gates=top.table("gates").read(GateRules),
        stage1=stage1.groups("modules", "purpose", "names"),
        squashfs_level=squashfs.number("level"),
        squashfs_block_bytes=squashfs.number("block-bytes"),
        squashfs_merge=squashfs.flag("merge"),
    )
    top.must_be_read()
    return recipe


def _distribution(name: str, table: TomlTable) -> Distribution:
    distribution = table.read(Distribution, name=name)
    unknown = set(distribution.architectures) - set(get_args(Architecture))
    if unknown:
        raise NeedsHuman(f"{table.path}: architecture {unknown} is unknown", hint=f"use {get_args(Architecture)}")
    return distribution
