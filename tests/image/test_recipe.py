from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.errors import NeedsHuman, NotFound
from provisioner.image.assembly.stage1 import scripts
from provisioner.image.base import remove
from provisioner.image.recipe import parse_recipe, read_data, read_recipe
from provisioner.image.tools.tables import names_of
from tests.image.samples import CPU, DPU, IMAGES, NODE, RECIPE, VARIANTS

FOLDERS, DATA = read_data(RECIPE)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The real recipe with one value changed, or taken out (None). A number in the path is a place in a list."""
    data: Any = copy.deepcopy(DATA)
    *folders, name = path.split("/")
    table = data
    for folder in folders:
        table = table[int(folder) if folder.isdigit() else folder]
    if value is None:
        del table[name]
    else:
        table[name] = value
    assert isinstance(data, dict)
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
        ("root/install", "systemd", "root: install is 'systemd'; make it a list of tables"),
        ("root/install", ["systemd"], "make it a list of tables, each under"),
        ("root/install/0/packages", "systemd", "install\\[0\\]: packages is 'systemd'; make it a list of strings"),
        ("root/install/0/packages", [1], "make it a list of strings"),
        ("root/install/0/purpose", None, "purpose is None"),
        ("root/install/0/purpose", " ", "install\\[0\\]: purpose is empty; say why"),
        ("root/install/0/pakages", [], "unknown key pakages"),
        ("root/drop/0/purpose", "x", "drop\\[0\\]: unknown key purpose"),
        ("root/enable/0/target", None, "target is None"),
        ("squashfs/level", "high", "level is 'high'; make it a whole number"),
        ("squashfs/level", True, "level is True"),
        ("squashfs/merge", 1, "merge is 1; make it true or false"),
        ("root/pakages", [], "unknown key pakages"),
        ("distribution/debian/mirror", "http://x", "unknown key mirror"),
        ("distribution/debian/architectures", {"riscv64": "riscv64"}, "riscv64"),
        ("gates/root-budget-bytes", None, "gates: root-budget-bytes is None"),
        ("gates/budget", 1, "gates: unknown key budget"),
        ("driver/modules/0/names", None, "driver: modules\\[0\\]: names is None"),
        ("driver/firmware/0/families", "Hopper", "make it a list of strings"),
        ("driver/peermem", True, "driver: unknown key peermem"),
        ("driver/distribution/debian/obtain", "download", "obtain is 'download'; use one of build, prebuilt"),
        ("driver/distribution/debian/source/replace/0/new", None, "new is None"),
        ("driver/distribution/ubuntu/source", {}, "unknown key source"),
        ("driver/licences/0/redistributable", "yes", "redistributable is 'yes'; make it true or false"),
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


@pytest.mark.parametrize("name", VARIANTS)
def test_each_variant_is_a_recipe_whose_rules_all_have_their_reasons(name: str) -> None:
    recipe = read_recipe(IMAGES / name)
    assert recipe.name == name
    assert recipe.folders[0] == NODE
    groups = [
        *recipe.root.install,
        *recipe.root.drop,
        *recipe.root.kernel_modules,
        *recipe.root.mask,
        *recipe.arguments,
    ]
    assert groups
    assert all(len(group.why) > 10 and group.names for group in groups)
    for names in (recipe.root.packages, names_of(recipe.root.drop), recipe.root.modules, names_of(recipe.root.mask)):
        assert len(names) == len(set(names)), "named twice"


def test_every_folder_of_images_is_tested() -> None:
    assert sorted(file.parent.name for file in IMAGES.glob("*/recipe.toml")) == sorted((*VARIANTS, "node"))


def test_a_node_without_gpus_has_no_driver_no_rdma_and_the_small_budget() -> None:
    cpu, gpu = read_recipe(CPU), read_recipe(RECIPE)
    assert (cpu.driver, read_recipe(DPU).driver) == (None, None)
    assert "rdma-core" not in cpu.root.packages
    assert "ib_umad" not in cpu.root.modules
    assert (cpu.gates.root_budget_bytes, gpu.gates.root_budget_bytes) == (130_000_000, 250_000_000)
    assert cpu.gates.stage1_budget_bytes == gpu.gates.stage1_budget_bytes == 20_000_000
    assert set(cpu.root.packages) < set(gpu.root.packages)
    assert cpu.stage1_modules == gpu.stage1_modules


def test_what_is_kept_stays_of_what_is_dropped(tmp_path: Path) -> None:
    for name in ("doc/a/copyright", "doc/a/changelog", "doc/b/changelog", "man/m"):
        file = tmp_path / "usr/share" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    remove(tmp_path, ["usr/share/doc", "usr/share/m*"], ["usr/share/doc/*/copyright"])
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()] == [
        "usr/share/doc/a/copyright"
    ]
    assert not (tmp_path / "usr/share/doc/b").exists()
    remove(tmp_path, ["usr/share/doc/a/copyright"], ["usr/share/doc"])
    assert (tmp_path / "usr/share/doc/a/copyright").exists(), "a kept folder is kept with what is in it"


@pytest.mark.parametrize("pattern", ["/etc", "../etc", "usr/../../etc"])
def test_no_pattern_reaches_outside_the_root(tmp_path: Path, pattern: str) -> None:
    for removed, kept in (([pattern], []), ([], [pattern])):
        with pytest.raises(NeedsHuman, match="patterns relative to the root"):
            remove(tmp_path, removed, kept)
