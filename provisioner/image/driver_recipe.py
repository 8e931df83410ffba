"""What a recipe says about the GPU driver: which modules, firmware and files, why, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman, NotFound
from provisioner.image.tools.tables import RecipeGroup, TomlTable, enabled_units, grouped, listed, names_of, recorded

_OBTAINED: Final = ("build", "prebuilt")
"""`build`: modules are compiled against the image's own kernel. `prebuilt`: the distribution has them, signed."""
RELEASE: Final = "{release}"
"""In the name of a package: the release of the image's kernel, such as 6.12.117+deb13-amd64."""


@dataclass(frozen=True)
class Firmware:
    """Files of the GPUs' own system processor, and the families of GPUs that need them."""

    reason: str
    families: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True)
class ModuleOptions:
    """Options that `module` is loaded with."""

    reason: str
    module: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class FileMove:
    """Files in the folder `source` go to `target`; of several `*` in each, one stands for what the other matched."""

    reason: str
    source: str
    target: str


def _file_move(table: TomlTable) -> FileMove:
    return FileMove(table.reason("reason"), table.text("from"), table.text("to"))


@dataclass(frozen=True)
class Replacement:
    """`old`, which `file` of the source has exactly once, becomes `new`, if the kernel's `header` has `header_has`."""

    reason: str
    file: str
    header: str
    header_has: str
    old: str
    new: str


@dataclass(frozen=True)
class Licence:
    """Under what files of these packages may be passed on. `identifier` is SPDX's, or a LicenseRef of ours."""

    reason: str
    identifier: str
    redistributable: bool
    packages: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ModuleSource:
    """Modules to be compiled: package, the archive in it, and the folder in that where `make` is called."""

    package: str
    archive: str
    folder: str
    headers: str
    header_packages: tuple[str, ...]
    tools: tuple[RecipeGroup, ...] = field(metadata=grouped("purpose", "packages"))
    replace: tuple[Replacement, ...] = field(metadata=recorded(Replacement))


@dataclass(frozen=True, kw_only=True)
class DriverSource:
    """How one distribution comes by the driver.

    `version` is that of the driver, or its beginning: what is obtained must be it, whatever the archive has by then.
    `components` of the archive are asked for beside those of the base.
    """

    distribution: str
    version: str
    components: tuple[str, ...]
    install: tuple[RecipeGroup, ...] = field(metadata=grouped("purpose", "packages"))
    dependencies: tuple[RecipeGroup, ...] = field(metadata=grouped("purpose", "patterns"))
    lacking: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "packages"))
    move: tuple[FileMove, ...] = field(metadata=listed(_file_move))
    source: ModuleSource | None

    def packages(self, release: str) -> tuple[str, ...]:
        """The packages that are unpacked, for a kernel of that release."""
        return tuple(dict.fromkeys(name.replace(RELEASE, release) for name in names_of(self.install)))

    @property
    def tools(self) -> tuple[str, ...]:
        """Packages of the chroot in which modules are compiled."""
        return names_of(self.source.tools) if self.source else ()


@dataclass(frozen=True, kw_only=True)
class DriverRecipe:
    """The driver of a recipe's images. Everything is unpacked, and only what a rule of `keep` matches stays."""

    modules_folder: str
    """Below /usr/lib/modules/<release>."""
    modules: tuple[RecipeGroup, ...] = field(metadata=grouped("purpose", "names"))
    firmware: tuple[Firmware, ...] = field(metadata=recorded(Firmware))
    keep: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "paths"))
    clear_setuid: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "paths"))
    options: tuple[ModuleOptions, ...] = field(metadata=recorded(ModuleOptions))
    blacklist: tuple[RecipeGroup, ...] = field(metadata=grouped("reason", "modules"))
    enable: tuple[tuple[str, RecipeGroup], ...] = field(metadata=listed(enabled_units))
    """Units by the target that starts them."""
    licences: tuple[Licence, ...] = field(metadata=recorded(Licence))
    container_toolkit: bool
    """Whether the layer has NVIDIA's container toolkit, by which containers get GPUs."""
    sources: Mapping[str, DriverSource]

    def source(self, distribution: str) -> DriverSource:
        """Raises: NotFound if the recipe has no driver for it; NeedsHuman if the distribution lacks a part of it."""
        if distribution not in self.sources:
            raise NotFound(
                f"the recipe has no GPU driver for {distribution!r}",
                hint=f"use one of {', '.join(self.sources)}, or add [driver.distribution.{distribution}]",
            )
        found = self.sources[distribution]
        if found.lacking:
            missing = ", ".join(names_of(found.lacking))
            why = "; ".join(dict.fromkeys(group.why for group in found.lacking))
            complete = [name for name, source in self.sources.items() if not source.lacking]
            raise NeedsHuman(
                f"{distribution} has no package of {missing}, which this image needs: {why}",
                hint=f"build with --distribution {' or '.join(complete) or 'of another kind'}, "
                "or images/gpu-node, if the server's GPUs hang on no NVSwitch",
            )
        return found


def parse_driver(table: TomlTable) -> DriverRecipe:
    """The table `[driver]`. Raises: NeedsHuman naming a key that is missing, empty or of another type."""
    distributions = table.table("distribution")
    return table.read(
        DriverRecipe, sources={name: _source(name, distributions.table(name)) for name in distributions.data}
    )


def _source(name: str, table: TomlTable) -> DriverSource:
    obtain = table.text("obtain")
    if obtain not in _OBTAINED:
        raise NeedsHuman(f"{table.path}: obtain is {obtain!r}", hint=f"use one of {', '.join(_OBTAINED)}")
    source = table.table("source").read(ModuleSource) if obtain == "build" else None
    return table.read(DriverSource, distribution=name, source=source)
