"""What `image build --plan` shows: the commands of every variant, for each distribution and architecture of it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from click.testing import CliRunner

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.cli.service.image import image
from provisioner.image.driver.plan import plan_driver
from provisioner.image.mirror import choose_archives
from provisioner.image.plan import Choices, bootstrap_command, describe, squashfs_command
from provisioner.image.recipe import Recipe, read_recipe
from tests.golden_files import assert_golden
from tests.image.samples import IMAGES, RECIPE, VARIANTS

WHAT_DEBIAN_LACKS = {
    "gpu-hgx": "nvidia-fabricmanager",
    "gpu-hgx-b200": "nvidia-fabricmanager, nvlsm",
    "gpu-mnnvl": "nvidia-imex",
}


def choices(recipe: Recipe, name: str, architecture: Architecture) -> Choices:
    distribution = recipe.distribution(name, architecture)
    archives = choose_archives(distribution, [], f"http://mirror.example/{name}")
    return Choices(architecture=architecture, distribution=distribution, archives=archives)


def cases() -> list[tuple[str, str, Architecture]]:
    """Variant, distribution, architecture: all that there are."""
    recipes = {variant: read_recipe(IMAGES / variant) for variant in VARIANTS}
    return [
        (variant, name, architecture)
        for variant, recipe in recipes.items()
        for name, distribution in recipe.distributions.items()
        for architecture in get_args(Architecture)
        if architecture in distribution.architectures and (name == "ubuntu" or variant not in WHAT_DEBIAN_LACKS)
    ]


@pytest.mark.parametrize(("variant", "name", "architecture"), cases())
def test_the_commands_of_every_variant_are_the_golden_ones(variant: str, name: str, architecture: Architecture) -> None:
    recipe = read_recipe(IMAGES / variant)
    chosen = choices(recipe, name, architecture)
    commands = [bootstrap_command(recipe, chosen, Path("root"))]
    if recipe.driver is not None:
        commands += plan_driver(recipe.driver, chosen)
    assert_golden(f"image/plan-{variant}-{name}-{architecture}.sh", describe(commands))


def test_the_command_that_packs_is_the_golden_one() -> None:
    command = squashfs_command(read_recipe(RECIPE), Path("root"), Path("root.squashfs"))
    assert_golden("image/squashfs.sh", describe([command]))


@pytest.mark.parametrize(("variant", "lacks"), WHAT_DEBIAN_LACKS.items())
def test_what_debian_lacks_of_a_variant_is_said_with_what_can_be_done(variant: str, lacks: str) -> None:
    recipe = read_recipe(IMAGES / variant)
    assert recipe.driver is not None
    with pytest.raises(NeedsHuman, match=f"debian has no package of {lacks}, .*--distribution ubuntu") as told:
        plan_driver(recipe.driver, choices(recipe, "debian", "x86_64"))
    assert "images/gpu-node" in told.value.hint


def test_the_plan_that_a_person_sees_is_the_golden_one_and_nothing_is_built(tmp_path: Path) -> None:
    files = [f"--{name}={tmp_path / name}" for name in ("kubelet", "join-ca", "key", "output", "cache")]
    words = ["build", str(IMAGES / "gpu-hgx"), "--plan", "--mirror", "http://mirror.example/ubuntu", *files]
    shown = CliRunner().invoke(image, words)
    assert shown.exit_code == 0, shown.output
    assert_golden("image/plan-gpu-hgx-ubuntu-x86_64.sh", shown.output)
    assert "nvidia-fabricmanager-580" in shown.output
    assert list(tmp_path.iterdir()) == []
