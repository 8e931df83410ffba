"""What goes into the layer, and where to: a table of paths, and rules that match nothing are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver.trim import clear_setuid, firmware_rules, keep, lay_out, moved, must_have_targets
from provisioner.image.driver_recipe import FileMove, Firmware
from provisioner.image.recipe import read_recipe
from provisioner.image.tools.tables import RecipeGroup
from tests.image.samples import RECIPE

DRIVER = read_recipe(RECIPE).driver
assert DRIVER is not None
MOVES = DRIVER.source("debian").move


@pytest.mark.parametrize(
    ("path", "goes"),
    [
        ("usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1", "usr/lib/x86_64-linux-gnu/libcuda.so.1"),
        ("usr/lib/aarch64-linux-gnu/nvidia/current/libcuda.so.1", "usr/lib/aarch64-linux-gnu/libcuda.so.1"),
        ("usr/lib/nvidia/current/nvidia-smi", "usr/bin/nvidia-smi"),
        ("usr/lib/x86_64-linux-gnu/nvidia/current/deep/er", "usr/lib/x86_64-linux-gnu/deep/er"),
        ("lib/firmware/nvidia/580/gsp.bin", "usr/lib/firmware/nvidia/580/gsp.bin"),
        ("sbin/x", "usr/sbin/x"),
        ("usr/lib/x86_64-linux-gnu/nvidia/other/libcuda.so.1", "usr/lib/x86_64-linux-gnu/nvidia/other/libcuda.so.1"),
        ("usr/lib/nvidia/current", "usr/lib/nvidia/current"),
        ("etc/OpenCL/vendors/nvidia.icd", "etc/OpenCL/vendors/nvidia.icd"),
    ],
)
def test_where_a_file_of_debians_packages_goes(path: str, goes: str) -> None:
    assert moved(path, MOVES) == goes


def tree(root: Path, *files: str) -> Path:
    for name in files:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return root


def files(root: Path) -> list[str]:
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_symlink() or file.is_file())


def test_files_are_laid_out_and_two_of_one_name_are_refused(tmp_path: Path) -> None:
    first = tree(tmp_path / "a", "usr/lib/nvidia/current/nvidia-smi", "lib/firmware/x")
    lay_out(first, MOVES, tmp_path / "out")
    assert files(tmp_path / "out") == ["usr/bin/nvidia-smi", "usr/lib/firmware/x"]
    with pytest.raises(NeedsHuman, match="two files of the driver would be usr/bin/nvidia-smi"):
        lay_out(tree(tmp_path / "b", "usr/bin/nvidia-smi"), MOVES, tmp_path / "out")


def test_only_what_a_rule_keeps_is_in_the_layer_and_links_stay_links(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", "usr/lib/x/libcuda.so.5", "usr/lib/x/libnvidia-opencl.so.5", "opt/a/b/c", "opt/a/d")
    (source / "usr/lib/x/libcuda.so.1").symlink_to("libcuda.so.5")
    keep(
        source,
        [RecipeGroup("one", ("usr/lib/*/libcuda.so*",)), RecipeGroup("a folder", ("opt/a", "nowhere"))],
        tmp_path / "out",
    )
    assert files(tmp_path / "out") == ["opt/a/b/c", "opt/a/d", "usr/lib/x/libcuda.so.1", "usr/lib/x/libcuda.so.5"]
    assert str((tmp_path / "out/usr/lib/x/libcuda.so.1").readlink()) == "libcuda.so.5"


def test_a_rule_that_keeps_nothing_is_named_with_its_reason(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", "usr/bin/nvidia-smi")
    with pytest.raises(NeedsHuman, match=r"nothing of usr/bin/nvidia-smii \(what people look with\)"):
        keep(source, [RecipeGroup("what people look with", ("usr/bin/nvidia-smii",))], tmp_path / "out")


def test_firmware_is_kept_by_the_families_that_the_recipe_names(tmp_path: Path) -> None:
    source = tree(tmp_path / "in", *(f"usr/lib/firmware/nvidia/5/gsp_{name}.bin" for name in ("ga10x", "tu10x", "x")))
    hopper = [Firmware("runs nothing without", ("Hopper",), ("gsp_ga10x.bin",))]
    keep(source, firmware_rules(hopper), tmp_path / "out")
    assert files(tmp_path / "out") == ["usr/lib/firmware/nvidia/5/gsp_ga10x.bin"]
    families = {family: each.files for each in DRIVER.firmware for family in each.families}
    assert all(files for files in families.values())
    assert next(files for family, files in families.items() if "H100" in family) == ("gsp_ga10x.bin",)
    assert next(files for family, files in families.items() if "A100" in family) == ("gsp_tu10x.bin",)


def test_set_uid_bits_are_taken_only_where_the_recipe_says_so(tmp_path: Path) -> None:
    root = tree(tmp_path, "usr/bin/nvidia-modprobe", "usr/bin/other")
    for file in root.glob("usr/bin/*"):
        file.chmod(0o4755)
    clear_setuid(root, DRIVER.clear_setuid)
    assert {file.name: file.stat().st_mode & 0o7777 for file in root.glob("usr/bin/*")} == {
        "nvidia-modprobe": 0o755,
        "other": 0o4755,
    }


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    layer, base = tree(tmp_path / "layer", "usr/lib/a"), tree(tmp_path / "base", "usr/lib/systemd/b.service")
    (layer / "usr/lib/here").symlink_to("a")
    (layer / "usr/lib/below").symlink_to("/usr/lib/systemd/b.service")
    (layer / "usr/lib/masked").symlink_to("/dev/null")
    must_have_targets(layer, base)
    (layer / "usr/lib/nowhere").symlink_to("/etc/alternatives/nvidia")
    with pytest.raises(NeedsHuman, match="usr/lib/nowhere of the driver leads to /etc/alternatives/nvidia"):
        must_have_targets(layer, base)


def test_a_star_of_the_target_stands_for_the_one_that_matched() -> None:
    moves = [FileMove("", "opt/*/b/*", "usr/*/x/*")]
    assert moved("opt/1/b/2/file", moves) == "usr/1/x/2/file"
    assert moved("opt/1/c/2/file", moves) == "opt/1/c/2/file"
