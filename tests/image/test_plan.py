from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.server import Architecture
from provisioner.image.mirror import choose_archives
from provisioner.image.plan import Choices, bootstrap_command, describe, squashfs_command
from provisioner.image.recipe import read_recipe
from tests.golden_files import assert_golden
from tests.image.samples import RECIPE


@pytest.mark.parametrize(("name", "architecture"), [("debian", "x86_64"), ("ubuntu", "x86_64"), ("ubuntu", "arm64")])
def test_the_commands_are_the_golden_ones(name: str, architecture: Architecture) -> None:
    recipe = read_recipe(RECIPE)
    distribution = recipe.distribution(name, architecture)
    archives = choose_archives(distribution, [], f"http://mirror.example/{name}")
    choices = Choices(architecture=architecture, distribution=distribution, archives=archives)
    commands = [
        bootstrap_command(recipe, choices, Path("root")),
        squashfs_command(recipe, Path("root"), Path("root.squashfs")),
    ]
    assert_golden(f"image/plan-{name}-{architecture}.sh", describe(commands))
