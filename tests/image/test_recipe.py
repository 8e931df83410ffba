from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.errors import NeedsHuman, NotFound
from provisioner.image.recipe import parse_recipe, read_data, read_recipe
from provisioner.image.stage1 import scripts
from tests.image.samples import NODE, RECIPE

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


def write(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "recipe.toml").write_text(text)
    return folder


def test_a_recipe_that_extends_another_adds_to_its_lists_and_tables_and_has_its_own_words(tmp_path: Path) -> None:
    base = write(
        tmp_path / "base", 'name = "b"\nlist = [1]\n[table]\nlist = ["a"]\nword = "x"\n[table.inner]\na = "1"\n'
    )
    own = write(
        tmp_path / "own",
        'extends = "../base"\nname = "o"\nlist = [2]\n[table]\nlist = ["b"]\n[table.inner]\nb = "2"\n[more]\nc = 3\n',
    )
    third = write(tmp_path / "third", 'extends = "../own"\nlist = [3]\n')
    assert read_data(own) == (
        (base, own),
        {
            "name": "o",
            "list": [1, 2],
            "table": {"list": ["a", "b"], "word": "x", "inner": {"a": "1", "b": "2"}},
            "more": {"c": 3},
        },
    )
    assert read_data(third)[0] == (base, own, third)
    assert read_data(third)[1]["list"] == [1, 2, 3]


def test_a_recipe_that_extends_itself_or_nothing_is_named(tmp_path: Path) -> None:
    for name, other in (("a", "../b"), ("b", "../a")):
        write(tmp_path / name, f'extends = "{other}"\n')
    with pytest.raises(NeedsHuman, match="extends itself"):
        read_data(tmp_path / "a")
    with pytest.raises(NotFound, match="nowhere"):
        read_data(write(tmp_path / "c", 'extends = "../nowhere"\n'))
    with pytest.raises(NeedsHuman, match="extends is 3; make it a folder"):
        read_data(write(tmp_path / "d", "extends = 3\n"))


def test_what_only_others_extend_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match="name is None"):
        read_recipe(NODE)


def test_a_file_of_the_own_tree_replaces_that_of_the_extended_one(tmp_path: Path) -> None:
    for name in ("base", "own"):
        (tmp_path / name / "stage1").mkdir(parents=True)
        (tmp_path / name / "stage1" / "same").write_text(name)
        (tmp_path / name / "stage1" / name).write_text("one")
    files = {entry.name: entry.content for entry in scripts((tmp_path / "base/stage1", tmp_path / "own/stage1"))}
    assert files == {"base": b"one", "own": b"one", "same": b"own"}
