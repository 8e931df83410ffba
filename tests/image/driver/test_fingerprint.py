"""What makes another driver layer, and what does not."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver.fingerprint import driver_fingerprint, modules_fingerprint, tools_fingerprint
from provisioner.image.driver.obtain import Obtained
from provisioner.image.driver.plan import WantedDriver
from provisioner.image.mirror import choose_archives
from provisioner.image.plan import DEBS, Choices
from provisioner.image.recipe import Recipe, parse_recipe, read_data, read_recipe
from tests.image.samples import CPU, IMAGES, RECIPE


def choices(recipe: Recipe, name: str = "debian", mirror: str = "http://mirror.example") -> Choices:
    distribution = recipe.distribution(name, "x86_64")
    archives = choose_archives(distribution, [], mirror)
    return Choices(architecture="x86_64", distribution=distribution, archives=archives)


def fingerprint(recipe: Recipe, **more: Any) -> str:
    given = {"choices": choices(recipe), "base": "b" * 64, "certificate": b"one", **more}
    return driver_fingerprint(recipe, given["choices"], given["base"], given["certificate"])


def changed(path: str, value: Any) -> Recipe:
    folders, data = read_data(RECIPE)
    table: Any = data
    *parents, last = path.split("/")
    for name in parents:
        table = table[int(name) if name.isdigit() else name]
    table[last] = value
    return parse_recipe(folders, data)


RECIPE_OF_GPUS = read_recipe(RECIPE)
SAME = fingerprint(RECIPE_OF_GPUS)


def test_the_same_inputs_have_one_fingerprint() -> None:
    assert fingerprint(read_recipe(RECIPE)) == SAME


@pytest.mark.parametrize(
    "more",
    [
        {"base": "c" * 64},
        {"certificate": b"two"},
        {"certificate": None},
        {"choices": choices(RECIPE_OF_GPUS, "ubuntu")},
        {"choices": choices(RECIPE_OF_GPUS, mirror="http://other.example")},
    ],
)
def test_another_base_key_distribution_or_archive_makes_another_layer(more: dict[str, Any]) -> None:
    assert fingerprint(RECIPE_OF_GPUS, **more) != SAME


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("driver/modules-folder", "extra"),
        ("driver/modules/0/names", ["nvidia"]),
        ("driver/firmware/0/files", ["gsp_tu10x.bin"]),
        ("driver/keep/0/paths", ["usr/lib/*/libcuda.so*"]),
        ("driver/options/0/options", ["NVreg_X=1"]),
        ("driver/blacklist/0/modules", []),
        ("driver/distribution/debian/version", "550.163.02"),
        ("driver/distribution/debian/source/replace/0/new", "pci()"),
        ("driver/licences/0/redistributable", False),
        ("source-date-epoch", 1),
    ],
)
def test_another_word_of_the_recipe_makes_another_layer(path: str, value: Any) -> None:
    assert fingerprint(changed(path, value)) != SAME


@pytest.mark.parametrize(
    ("path", "value"), [("root/agents/0/names", ["api"]), ("gates/root-budget-bytes", 1), ("squashfs/level", 3)]
)
def test_what_lies_above_the_driver_makes_no_other_layer(path: str, value: Any) -> None:
    """The agent, the gates and how a layer is packed: a driver of some 60 MB is not fetched again for them."""
    assert fingerprint(changed(path, value)) == SAME


def test_a_file_of_the_layer_makes_another_layer(tmp_path: Path) -> None:
    folder = tmp_path / "gpu-node"
    for name in ("node", "cpu-node", "gpu-node"):
        shutil.copytree(IMAGES / name, tmp_path / name)
    before = fingerprint(read_recipe(folder))
    (folder / "driver/usr/lib/provisioner/gpu-devices").write_text("#!/bin/sh\n")
    assert fingerprint(read_recipe(folder)) != before


def test_a_recipe_without_a_driver_or_a_distribution_without_a_part_has_no_fingerprint() -> None:
    with pytest.raises(NeedsHuman, match="has no GPU driver"):
        fingerprint(read_recipe(CPU))
    with pytest.raises(NeedsHuman, match="debian has no package of nvidia-fabricmanager"):
        fingerprint(read_recipe(IMAGES / "gpu-hgx"))


def wanted(recipe: Recipe, release: str = "6.12.1-amd64") -> WantedDriver:
    assert recipe.driver is not None
    return WantedDriver(choices=choices(recipe), source=recipe.driver.source("debian"), release=release)


def obtained(folder: Path, **contents: bytes) -> Obtained:
    """Packages by name, with dashes as underscores, and what they contain."""
    (folder / DEBS).mkdir(parents=True)
    (folder / "var/lib/dpkg").mkdir(parents=True)
    (folder / "var/lib/dpkg/status").write_bytes(contents.pop("status", b"gcc-14 1"))
    given = {"nvidia_open_kernel_source": b"source", "linux_headers_6.12.1_amd64": b"headers", "libcuda1": b"cuda"}
    for name, content in {**given, **contents}.items():
        (folder / DEBS / f"{name.replace('_', '-')}_1_amd64.deb").write_bytes(content)
    return Obtained(folder)


def test_modules_are_compiled_again_for_another_source_kernel_or_compiler_and_for_nothing_else(tmp_path: Path) -> None:
    recipe = RECIPE_OF_GPUS
    same = modules_fingerprint(recipe, wanted(recipe), obtained(tmp_path / "a"))
    others = {
        "again": obtained(tmp_path / "b"),
        "libcuda1": obtained(tmp_path / "c", libcuda1=b"another"),
        "source": obtained(tmp_path / "d", nvidia_open_kernel_source=b"another"),
        "headers": obtained(tmp_path / "e", **{"linux_headers_6.12.1_amd64": b"another"}),
        "compiler": obtained(tmp_path / "f", status=b"gcc-14 2"),
    }
    differ = {name for name, each in others.items() if modules_fingerprint(recipe, wanted(recipe), each) != same}
    assert differ == {"source", "headers", "compiler"}
    one = obtained(tmp_path / "g")
    assert modules_fingerprint(recipe, wanted(recipe, "6.12.2-amd64"), one) != same
    kept = changed("driver/keep/0/paths", ["usr/lib/*/libcuda.so*"])
    assert modules_fingerprint(kept, wanted(kept), one) == same
    replaced = changed("driver/distribution/debian/source/replace/0/new", "pci()")
    assert modules_fingerprint(replaced, wanted(replaced), one) != same


def test_packages_are_obtained_again_for_another_kernel_or_archive() -> None:
    first = wanted(RECIPE_OF_GPUS)
    other = dataclasses.replace(first, choices=choices(RECIPE_OF_GPUS, mirror="http://other.example"))
    digests = {tools_fingerprint(each) for each in (first, wanted(RECIPE_OF_GPUS, "6.12.2-amd64"), other)}
    assert len(digests) == 3
    assert tools_fingerprint(wanted(read_recipe(RECIPE))) in digests
