"""One container image, from recipe, packages and wheels."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from artefacts.archive import ContainerImage, make_image
from artefacts.debian import DebianPackage, Unpacked
from artefacts.kept_layer import compile_and_pack
from artefacts.layer import Layer
from artefacts.recipe import ContainerRecipe, Machine
from artefacts.staging import add_libraries, copy, stage_debian, write
from artefacts.wheels import Wheel, unpack_wheel

PYTHON: Final = "python3.13"
COMMAND: Final = b"""#!/usr/bin/python3.13 -IB
from provisioner.cli.main import main

main()
"""
"""/usr/bin/provisioner. The kernel reads its first line: no shell is needed."""


@dataclass(frozen=True, kw_only=True)
class Ingredients:
    """What goes into an image. `own_machine`: packages of the machine that builds, whose Python compiles."""

    recipe: ContainerRecipe
    machine: Machine
    debian: Unpacked
    own_machine: Unpacked
    wheels: Sequence[Wheel]
    own: Wheel


@dataclass(frozen=True)
class Built:
    """The image, and what it is made of."""

    image: ContainerImage
    packages: tuple[DebianPackage, ...]
    wheels: tuple[Wheel, ...]


def build(ingredients: Ingredients, created: int, cache: Path | None) -> Built:
    """`created`: seconds since 1970. `cache`: where layers are kept; None to make each anew.

    Raises: NeedsHuman if something that the recipe wants is not there.
    """
    recipe = ingredients.recipe
    wheels = [wheel for wheel in ingredients.wheels if wheel.name not in recipe.without]
    with tempfile.TemporaryDirectory(prefix="provisioner-image-") as work:
        system, site, own = (Path(work) / name for name in ("system", "site", "own"))
        for folder in (system, site, own):
            folder.mkdir()
        for wheel in wheels:
            unpack_wheel(wheel, site, recipe.leave_of_wheels)
        unpack_wheel(ingredients.own, own)
        write(own / "usr/bin/provisioner", COMMAND, 0o755)
        stage_debian(recipe, ingredients.debian.root, system)
        add_libraries((system, site), ingredients.debian.root, ingredients.machine)
        packages = _taken(ingredients.debian, system)
        _say_what_is_in_it(packages, ingredients.debian.root, system)
        layers: list[Layer] = []
        (python,) = (each.version for each in ingredients.own_machine.packages if each.name == PYTHON)
        for folder, called in ((system, "Debian"), (site, "wheels"), (own, f"provisioner {ingredients.own.version}")):
            layers.append(compile_and_pack(folder, called, ingredients.own_machine.root, python, cache))
    image = make_image(recipe, ingredients.machine, layers, ingredients.own.version, created)
    return Built(image, packages, (*wheels, ingredients.own))


def _taken(debian: Unpacked, system: Path) -> tuple[DebianPackage, ...]:
    """Packages of which a file is in the image."""
    return tuple(
        package
        for package in debian.packages
        if any(not path.startswith("usr/share/doc/") and (system / path).is_file() for path in package.files)
        or package.name == "ca-certificates"
    )


def _say_what_is_in_it(packages: Sequence[DebianPackage], root: Path, system: Path) -> None:
    """As scanners look for it in images without dpkg's database, and as licences want it."""
    for package in packages:
        write(system / "var/lib/dpkg/status.d" / package.name, package.control.encode())
        copyright_file = f"usr/share/doc/{package.name}/copyright"
        if (root / copyright_file).is_file():
            copy(root, copyright_file, system)
