from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.image.gates.modules import FOLDER, read_modules
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.versions import PartVersion, check_agreement, check_driver, check_kernel, driver_versions
from provisioner.image.tools.tables import RecipeGroup
from tests.image.gates.samples import RELEASE, elf, module, told, tree_of

DRIVER = "550.163.01"
BELOW = f"{FOLDER}{RELEASE}"
FILES = {
    f"{BELOW}/kernel/drivers/net/veth.ko": module(version="1.0"),
    f"{BELOW}/kernel/drivers/i2c/busses/i2c-nvidia-gpu.ko": module(),
    f"{BELOW}/updates/nvidia.ko": module(version=DRIVER),
    f"{BELOW}/updates/nvidia-uvm.ko": module(version=DRIVER),
    f"usr/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin": "x",
    f"usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}": elf(),
    f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{DRIVER}": elf(),
    "usr/lib/x86_64-linux-gnu/libnvidia-container.so.1.17.8": elf(),
    f"usr/lib/x86_64-linux-gnu/libnvidia-nscq.so.{DRIVER}": elf(),
    "usr/bin/nvidia-smi": elf(),
    "usr/bin/nvidia-persistenced": elf(behind=f"nvidia-persistenced: version {DRIVER}".encode()),
    "usr/bin/nv-fabricmanager": elf(),
    "usr/bin/nvidia-modprobe": elf(),
}


def packages(**versions: str) -> list[InstalledPackage]:
    found = {"nvidia-smi": f"{DRIVER}-2", "nv-fabricmanager": f"1:{DRIVER}-0ubuntu0.24.04.1"} | versions
    return [
        InstalledPackage(
            name=name, version=version, architecture="amd64", source=name, source_version="", files=(f"usr/bin/{name}",)
        )
        for name, version in found.items()
    ]


def judged(tmp_path: Path, files: dict[str, bytes | str], **versions: str) -> list[tuple[str, str]]:
    tree = tree_of(tmp_path, files)
    modules, _ = read_modules(tree)
    found = driver_versions(tree, modules, packages(**{key.replace("_", "-"): each for key, each in versions.items()}))
    return told(check_driver(found, {"driver": DRIVER}))


def test_a_driver_of_one_version_passes(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, FILES)
    modules, _ = read_modules(tree)
    found = driver_versions(tree, modules, packages())
    assert {each.part for each in found} == {
        "kernel module nvidia",
        "kernel module nvidia-uvm",
        "GSP firmware gsp_ga10x.bin",
        "libcuda",
        "libnvidia-ml",
        "libnvidia-nscq",
        "nvidia-smi",
        "nvidia-persistenced",
        "nv-fabricmanager",
    }
    assert told(check_driver(found, {"driver": DRIVER})) == []


def test_an_image_without_a_driver_passes(tmp_path: Path) -> None:
    assert judged(tmp_path, {path: content for path, content in FILES.items() if "veth" in path}) == []


OTHER = "550.144.03"


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        (f"{BELOW}/updates/nvidia-uvm.ko", {f"{BELOW}/updates/nvidia-uvm.ko": module(version=OTHER)}),
        (f"usr/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin", {f"usr/lib/firmware/nvidia/{OTHER}/gsp_ga10x.bin": "x"}),
        (
            f"usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}",
            {f"usr/lib/x86_64-linux-gnu/libcuda.so.{OTHER}": elf()},
        ),
        (
            f"usr/lib/x86_64-linux-gnu/libnvidia-nscq.so.{DRIVER}",
            {f"usr/lib/x86_64-linux-gnu/libnvidia-nscq.so.{OTHER}": elf()},
        ),
    ],
)
def test_a_part_of_another_version_fails_alone(tmp_path: Path, removed: str, added: dict[str, bytes | str]) -> None:
    files = {path: content for path, content in FILES.items() if path != removed} | added
    ((path, observed),) = judged(tmp_path, files)
    assert path == f"/{next(iter(added))}" or OTHER in observed
    assert OTHER in observed


def test_a_fabric_manager_or_tool_of_another_version_fails(tmp_path: Path) -> None:
    assert judged(tmp_path, FILES, nv_fabricmanager=f"{OTHER}-1", nvidia_smi="not.a.version") == [
        ("/usr/bin/nv-fabricmanager", f"nv-fabricmanager is of version {OTHER}"),
        ("/usr/bin/nvidia-smi", "nvidia-smi is of version unknown"),
    ]


def test_the_kernel_module_decides_not_the_majority(tmp_path: Path) -> None:
    files = FILES | {f"{BELOW}/updates/nvidia{name}.ko": module(version=OTHER) for name in ("", "-uvm")}
    assert ("/usr/bin/nvidia-smi", f"nvidia-smi is of version {DRIVER}") in judged(tmp_path, files)


def test_half_a_driver_fails(tmp_path: Path) -> None:
    user = {path: content for path, content in FILES.items() if "/updates/" not in path}
    assert [observed for path, observed in judged(tmp_path / "user", user) if path == "NVIDIA's driver"] == [
        "parts of it are there (nv-fabricmanager), its kernel module is not"
    ]
    without_nvml = {path: content for path, content in FILES.items() if "libnvidia-ml" not in path}
    assert len(judged(tmp_path / "nvml", without_nvml)) == 1


def test_the_manifest_must_say_the_version_that_is_there() -> None:
    parts = [PartVersion("kernel module nvidia", "a", DRIVER), PartVersion("libnvidia-ml", "b", DRIVER)]
    assert told(check_driver(parts, {"driver": OTHER})) == [("manifest", f"version.driver is {OTHER}")]
    assert told(check_driver(parts, {})) == []


def test_kernel_modules_and_manifest_of_one_release_pass(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, FILES)
    modules, _ = read_modules(tree)
    assert told(check_kernel(tree, modules, RELEASE, RELEASE)) == []
    assert told(check_kernel(tree, modules, RELEASE, None)) == []


def test_a_module_or_folder_of_another_kernel_fails(tmp_path: Path) -> None:
    files = FILES | {
        f"{BELOW}/updates/nvidia.ko": module(release="6.12.1-other", version=DRIVER),
        f"{FOLDER}6.12.1-other/updates/x.ko": module(release="6.12.1-other"),
    }
    tree = tree_of(tmp_path, files)
    modules, _ = read_modules(tree)
    assert told(check_kernel(tree, modules, RELEASE, "6.12.2-third")) == [
        (f"/{BELOW}/updates/nvidia.ko", "vermagic of 6.12.1-other"),
        (f"/{FOLDER}6.12.1-other", "modules of another kernel"),
        (f"/{FOLDER}6.12.1-other/updates/x.ko", "vermagic of 6.12.1-other"),
        ("kernel", "its file is of release 6.12.2-third"),
    ]
    assert (f"/{FOLDER}9.9", "is not there") in told(check_kernel(tree, {}, "9.9", None))


def test_versions_that_the_recipe_ties_together_must_be_equal() -> None:
    groups = [RecipeGroup("one driver", ("driver", "fabricmanager"))]
    assert told(check_agreement({"driver": "1", "fabricmanager": "1", "other": "2"}, groups)) == []
    assert told(check_agreement({"driver": "1"}, groups)) == []
    assert told(check_agreement({"driver": "1", "fabricmanager": "2"}, groups)) == [
        ("manifest", "driver 1, fabricmanager 2")
    ]
