"""Container images of this checkout: layers, packages of Debian and wheels come from the cache, or go there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from artefacts.__main__ import RECIPES, own_machine
from artefacts.build import Built, Ingredients, build
from artefacts.debian import archives_of, unpack
from artefacts.recipe import read_recipe
from artefacts.wheel import build_wheel
from artefacts.wheels import download, wheel_of
from tests.tools import CACHE

CHECKOUT: Final = Path(__file__).parents[2]
EPOCH: Final = 1_790_000_000
CONTROLLER, BOOT = "provisioner", "provisioner-boot"


def read_ingredients(folder: Path) -> Mapping[str, Ingredients]:
    """By the image's name: what it is made of, for this machine. `folder`: for this checkout's wheel."""
    recipes = [read_recipe(CHECKOUT / "packaging/containers" / name) for name in RECIPES]
    machine, first = own_machine(), recipes[0]
    names = {name for recipe in recipes for name in recipe.packages}
    debian = unpack(sorted(names), machine, archives_of(first.suite, None), CACHE, print)
    made = Ingredients(
        recipe=first,
        machine=machine,
        debian=debian,
        own_machine=debian,
        wheels=download(CHECKOUT / "requirements/runtime.txt", first.python, machine, CACHE, print),
        own=wheel_of(build_wheel(CHECKOUT, folder)),
    )
    return {recipe.name: replace(made, recipe=recipe) for recipe in recipes}


def make(ingredients: Ingredients) -> Built:
    return build(ingredients, EPOCH, CACHE)
