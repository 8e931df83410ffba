"""The real driver, obtained from Debian and compiled against the image's own kernel: once a machine, then kept.

No GPU is needed: modules resolve and are signed, and programs find their libraries and say that there is no GPU.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from provisioner.image.driver.compile import compile_modules
from provisioner.image.driver.obtain import Obtained
from provisioner.image.driver.packages import licence_of
from provisioner.image.driver_recipe import ModuleSource, Replacement
from provisioner.image.gates.read.kernel_module import read_module
from provisioner.image.module_signing import ModuleKey, verify_module
from provisioner.image.plan import DEBS
from provisioner.image.tools.foreign import ForeignPrograms
from tests.image.driver.fakes import fake_package
from tests.image.driver.real import RealDriver, build_real, digests
from tests.tools import need_root

pytestmark = pytest.mark.timeout(3600)
"""The first run on a machine downloads and compiles."""

EPOCH = 1767225600


@pytest.fixture(scope="module")
def driver(module_key: ModuleKey) -> RealDriver:
    need_root("make a chroot")
    return build_real(module_key)


@pytest.fixture(scope="module")
def merged(driver: RealDriver, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base and layer together, as stage-1 mounts them."""
    root = tmp_path_factory.mktemp("merged") / "root"
    subprocess.run(["cp", "--archive", "--reflink=auto", str(driver.base.root), str(root)], check=True)
    subprocess.run(["cp", "--archive", f"{driver.tree.root}/.", str(root)], check=True)
    return root


def in_root(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["chroot", str(root), *words], capture_output=True, text=True, check=False, timeout=120)


def test_all_parts_are_of_one_version_and_for_the_images_kernel(driver: RealDriver) -> None:
    versions = driver.tree.versions
    parts = {versions[f"driver-{part}"] for part in ("modules", "firmware", "libraries")}
    assert parts == {versions["driver"]} == {"550.163.01"}
    assert versions["driver-kernel"] == driver.release


def test_modules_are_signed_by_the_sites_key(driver: RealDriver, module_key: ModuleKey) -> None:
    modules = sorted((driver.tree.root / "usr/lib/modules" / driver.release).rglob("*.ko"))
    assert [file.name for file in modules] == ["nvidia-uvm.ko", "nvidia.ko"]
    for file in modules:
        verify_module(file.read_bytes(), module_key.certificate)
        assert read_module(file.read_bytes()).release == driver.release
        assert b"\0.debug_info\0" not in file.read_bytes(), "nine tenths of what the compiler made"
        assert b"\0.BTF\0" not in file.read_bytes()


def test_modprobe_finds_the_driver_with_all_that_it_needs(driver: RealDriver, merged: Path) -> None:
    ran = in_root(merged, "modprobe", "--dry-run", "--show-depends", "--set-version", driver.release, "nvidia-uvm")
    assert ran.returncode == 0, ran.stderr
    names = [Path(line.split()[1]).name for line in ran.stdout.splitlines() if line.startswith("insmod")]
    assert names[-2:] == ["nvidia.ko", "nvidia-uvm.ko"]
    assert "drm.ko" in names
    assert "NVreg_DeviceFileMode=0666" in ran.stdout
    other = in_root(merged, "modprobe", "--dry-run", "--show-depends", "--set-version", driver.release, "mlx5_ib")
    assert other.returncode == 0, "the base's modules are in the same index"
    gpu = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
    alias = in_root(merged, "modprobe", "--dry-run", "--resolve-alias", "--set-version", driver.release, gpu)
    assert alias.stdout.split() == ["nvidia"]


def test_programs_find_their_libraries_and_say_what_is_missing(merged: Path) -> None:
    smi = in_root(merged, "nvidia-smi", "--list-gpus")
    assert "libnvidia-ml" not in smi.stdout, "it says so when it does not find the library"
    assert "couldn't communicate with the NVIDIA driver" in smi.stdout or smi.stdout.startswith("GPU 0:")
    assert "550.163.01" in in_root(merged, "nvidia-persistenced", "--version").stdout
    started = time.monotonic()
    alone = in_root(merged, "nvidia-persistenced", "--verbose")
    assert alone.returncode != 0, "there is no GPU that it could keep initialised"
    assert time.monotonic() - started < 60
    look = "from ctypes import CDLL; print(CDLL('libcuda.so.1').cuInit(0), CDLL('libnvidia-ml.so.1').nvmlInit_v2())"
    cuda, nvml = in_root(merged, "python3", "-I", "-c", look).stdout.split()
    assert "0" not in (cuda, nvml)


def test_the_container_toolkit_finds_libraries_in_the_loaders_cache(merged: Path) -> None:
    listed = subprocess.run(
        ["ldconfig", "-p", "-C", str(merged / "etc/ld.so.cache")], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[0] for line in listed.splitlines() if "nvidia" in line or "cuda" in line} >= {
        "libcuda.so.1",
        "libnvidia-ml.so.1",
        "libnvidia-cfg.so.1",
        "libnvidia-ptxjitcompiler.so.1",
    }


def test_nothing_of_nvidias_was_altered(driver: RealDriver) -> None:
    """Its licence allows passing files on only as they are."""
    given = set()
    for _, file in driver.obtained.packages():
        tar = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(file)], capture_output=True, check=True).stdout
        with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
            for member in archive:
                if (
                    member.isfile()
                    and "/src/" not in member.name
                    and (content := archive.extractfile(member)) is not None
                ):
                    given.add(hashlib.sha256(content.read()).hexdigest())
    root = driver.tree.root
    kept = [file for pattern in ("usr/bin/*", "usr/lib/*/lib*", "usr/lib/firmware/**/*") for file in root.glob(pattern)]
    files = [file for file in kept if file.is_file() and not file.is_symlink()]
    assert len(files) == 9, "three programs, four libraries, two files of firmware"
    assert [file.name for file in files if hashlib.sha256(file.read_bytes()).hexdigest() not in given] == []


def test_no_program_of_the_layer_runs_with_anothers_rights(driver: RealDriver) -> None:
    assert [path for path in driver.tree.root.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000] == []


def test_the_layer_hides_no_folder_of_the_base(driver: RealDriver) -> None:
    """/lib and /bin of the base are links: a folder of that name above would take their place."""
    assert sorted(path.name for path in driver.tree.root.iterdir()) == ["etc", "usr"]


def test_packages_are_told_with_their_licences(driver: RealDriver) -> None:
    names = {each.name for each in driver.tree.records.packages}
    assert {"libcuda1", "nvidia-smi", "firmware-nvidia-gsp", "nvidia-open-kernel-source"} <= names
    assert not any(name.startswith("linux-") for name in names)
    assert all(each.licence_files for each in driver.tree.records.packages)
    source = next(each for each in driver.tree.records.packages if each.name == "nvidia-open-kernel-source")
    assert f"usr/lib/modules/{driver.release}/updates/nvidia/nvidia.ko" in source.files
    assert driver.recipe.driver is not None
    licences = driver.recipe.driver.licences
    assert all(licence_of(each, licences).redistributable for each in driver.tree.records.packages)


def test_the_layer_is_put_together_the_same_once_more(driver: RealDriver, module_key: ModuleKey) -> None:
    again = build_real(module_key, name="again")
    try:
        assert digests(again.tree.root) == digests(driver.tree.root)
        assert again.tree.versions == driver.tree.versions
    finally:
        subprocess.run(["rm", "-rf", str(again.tree.folder)], check=True)


HELLO = r"""
#include <linux/module.h>
#include <linux/pci.h>
static int __init hello(void) { WARN_ON(THIS_MODULE == NULL); pr_info("%s\n", __FILE__); return answer(6); }
module_init(hello);
MODULE_LICENSE("GPL");
MODULE_VERSION("1.2.3");
"""
MAKEFILE = """
ifneq ($(KERNELRELEASE),)
obj-m := $(addsuffix .o, $(NV_KERNEL_MODULES))
else
modules:
\t$(MAKE) -C $(SYSSRC) M=$(CURDIR) KBUILD_OUTPUT=$(SYSOUT) NV_KERNEL_MODULES="$(NV_KERNEL_MODULES)" modules
endif
"""


def test_a_module_is_the_same_when_it_is_compiled_elsewhere_later_and_by_more_hands(
    driver: RealDriver, tmp_path: Path
) -> None:
    """A small one, by the way of the driver's: the driver itself is compiled twice in `make soak`."""
    chroot = tmp_path / "first"
    subprocess.run(["cp", "--archive", "--reflink=auto", str(driver.obtained.chroot), str(chroot)], check=True)
    with tarfile.open(tmp_path / "hello.tar", "w") as archive:
        for name, text in (("Makefile", MAKEFILE), ("hello.c", HELLO)):
            member = tarfile.TarInfo(f"modules/hello/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    fake_package(chroot / DEBS, "hello-source", "1", {"usr/src/hello.tar": (tmp_path / "hello.tar").read_bytes()})
    given = driver.recipe.driver
    assert given is not None
    real = given.source("debian").source
    assert real is not None
    source = ModuleSource(
        package="hello-source",
        archive="usr/src/hello.tar",
        folder="modules/hello",
        headers=real.headers,
        header_packages=real.header_packages,
        tools=real.tools,
        replace=(Replacement("", "hello.c", "include/linux/pci.h", "struct pci_dev", "answer(6)", "(6 * 7) & 0"),),
    )

    def compiled(where: Path, name: str, jobs: int) -> bytes:
        folder = compile_modules(
            Obtained(where),
            source,
            ["hello"],
            driver.release,
            "x86_64",
            EPOCH,
            tmp_path / name,
            ForeignPrograms("x86_64"),
            jobs,
        )
        return (folder / "hello.ko").read_bytes()

    first = compiled(chroot, "one", 1)
    assert read_module(first).version == "1.2.3"
    assert str(tmp_path).encode() not in first
    time.sleep(1.1)  # another second of the clock
    second = compiled(chroot.rename(tmp_path / "second"), "two", 2)
    assert second == first
