from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.errors import NeedsHuman, NotFound
from provisioner.image.recipe import parse_recipe, read_data, read_recipe
from tests.image.samples import RECIPE

FOLDERS, DATA = read_data(RECIPE)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The real recipe with one value changed, or taken out (None)."""
    data = copy.deepcopy(DATA)
    *folders, name = path.split("/")
    table = data
    for folder in folders:
        table = table[folder]
    if value is None:
        del table[name]
    else:
        table[name] = value
    return data


def test_the_default_is_ubuntu_and_debian_has_the_same_layout() -> None:
    recipe = read_recipe(RECIPE)
    assert recipe.distribution(None, "x86_64").identifier == "ubuntu-24.04"
    assert recipe.distribution("debian", "arm64").kernel["arm64"] == "linux-image-arm64"
    assert set(recipe.distributions) == {"debian", "ubuntu"}


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("name", None, "name is None"),
        ("root/packages", "systemd", "root: packages is 'systemd'; make it a list of strings"),
        ("root/packages", [1], "make it a list of strings"),
        ("root/enable", [], "enable is \\[\\]; make it a table"),
        ("squashfs/level", "high", "level is 'high'; make it a whole number"),
        ("squashfs/level", True, "level is True"),
        ("root/pakages", [], "unknown key pakages"),
        ("distribution/debian/mirror", "http://x", "unknown key mirror"),
        ("distribution/debian/architectures", {"riscv64": "riscv64"}, "riscv64"),
    ],
)
def test_a_wrong_key_is_named_with_its_place(path: str, value: Any, words: str) -> None:
    with pytest.raises(NeedsHuman, match=words):
        parse_recipe(FOLDERS, changed(path, value))


def test_unknown_folders_distributions_and_architectures_are_told_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="images/gpu-node"):
        read_recipe(tmp_path)
    with pytest.raises(NotFound, match="use one of debian, ubuntu"):
        read_recipe(RECIPE).distribution("fedora", "x86_64")
    (tmp_path / "recipe.toml").write_text("name =")
    with pytest.raises(NeedsHuman, match="is not TOML"):
        read_recipe(tmp_path)
    only_x86 = parse_recipe(FOLDERS, changed("distribution/debian/architectures", {"x86_64": "amd64"}))
    with pytest.raises(NotFound, match="has no architecture 'arm64'"):
        only_x86.distribution("debian", "arm64")
