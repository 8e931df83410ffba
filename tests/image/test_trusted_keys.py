"""Which keys an image's agent believes: those of the build, in the order in which they were named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import provisioner
from provisioner.image.finished.sign import PublicKeys, SecretKey
from provisioner.image.inputs import image_fingerprint
from provisioner.image.plan import Choices
from provisioner.image.recipe import read_recipe
from provisioner.image.request import BuildRequest
from provisioner.image.root import Ingredients, assemble_site

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parents[2]


def request(folder: Path) -> BuildRequest:
    """A build that is not made."""
    recipe = read_recipe(ROOT / "images/cpu-node")
    kubelet, join_ca = folder / "kubelet", folder / "join-ca.pem"
    kubelet.write_text("kubelet")
    join_ca.write_text("join CA")
    agent = Path(provisioner.__file__).parent
    return BuildRequest(
        recipe=recipe,
        choices=Choices(architecture="x86_64", distribution=recipe.distribution("debian", "x86_64"), archives=()),
        ingredients=Ingredients(architecture="x86_64", kubelet=kubelet, join_ca=join_ca, agent=agent),
        key=SecretKey.generate(),
        output=folder / "store",
        cache=folder / "cache",
    )


def test_the_agent_believes_the_key_of_its_image_and_those_that_were_named_and_they_make_another_image(
    tmp_path: Path,
) -> None:
    alone = request(tmp_path)
    new = SecretKey.generate().public
    both = replace(alone, also_trusted=(new, alone.key.public))
    assert both.trusted.keys == (alone.key.public, new), "each once"
    tree, units = tmp_path / "tree", tmp_path / "lower/usr/lib/systemd/system"
    units.mkdir(parents=True)
    root = both.recipe.root
    for unit in (*(each for _, group in root.enable for each in group.names), root.default_target):
        (units / unit).touch()
    assemble_site(both.recipe, tmp_path / "lower", both.ingredients, both.trusted, tree)
    assert PublicKeys.decode((tree / "etc/provisioner/image.pub").read_text()) == both.trusted
    assert image_fingerprint(alone, "base") != image_fingerprint(both, "base")
    assert image_fingerprint(alone, "base") == image_fingerprint(
        replace(alone, also_trusted=(alone.key.public,)), "base"
    )
