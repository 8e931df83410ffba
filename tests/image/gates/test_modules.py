from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.image.gates.modules import (
    FOLDER,
    ModprobeOutput,
    asked_for,
    check_firmware,
    check_modules,
    check_symbols,
    judge_probe,
    read_modules,
)
from provisioner.image.gates.read.kernel_image import read_exports, read_release
from provisioner.image.gates.read.kernel_module import KernelModule, read_module
from tests.image.gates.samples import RELEASE, kernel, module, told, tree_of

BELOW = f"{FOLDER}{RELEASE}"
FILES = {
    f"{BELOW}/kernel/a.ko": module(imports={"printk": 1, "b_call": 2}, depends="b", firmware=("vendor/a.bin",)),
    f"{BELOW}/kernel/b.ko": module(exports=("b_call",)),
    f"{BELOW}/modules.dep": "kernel/a.ko: kernel/b.ko\nkernel/b.ko:\n",
    f"{BELOW}/modules.softdep": "# Soft\nsoftdep a pre: crc32c post: other\nsoftdep b pre: x y\nsoftdep c pre: v,w\n",
    "usr/lib/firmware/vendor/a.bin": "x",
}
LOADED = ModprobeOutput(loads=(f"lib/modules/{RELEASE}/kernel/b.ko", f"lib/modules/{RELEASE}/kernel/a.ko"))


def test_modules_that_are_whole_pass(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, FILES, {"lib": "usr/lib"})
    modules, unreadable = read_modules(tree)
    assert sorted(modules) == [f"{BELOW}/kernel/a.ko", f"{BELOW}/kernel/b.ko"]
    assert unreadable == []
    assert told(check_modules(tree, RELEASE, LOADED)) == []
    assert told(check_symbols(modules, {"printk": 1}, {})) == []
    assert told(check_firmware(tree, modules, {})) == []


def test_modules_are_asked_for_by_the_recipe_and_by_soft_dependencies(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, FILES)
    assert asked_for(tree, RELEASE, ["nvidia", "x"]) == ("crc32c", "nvidia", "x", "y")


def test_modprobes_words_are_read() -> None:
    said = f"builtin overlay\ninsmod /lib/modules/{RELEASE}/kernel/b.ko option=1\ninstall /bin/false\n"
    assert judge_probe(0, said, "") == ModprobeOutput((f"lib/modules/{RELEASE}/kernel/b.ko",), ("/bin/false",), ())
    assert judge_probe(1, "", "modprobe: FATAL: Module nvidia not found in directory /lib/modules/x\n").errors == (
        "Module nvidia not found in directory /lib/modules/x",
    )
    assert judge_probe(0, "", "modprobe: WARNING: Module a not found in directory /x\n").errors
    assert judge_probe(127, "", "chroot: failed to run command 'modprobe'\n").errors == (
        "modprobe ended with status 127: chroot: failed to run command 'modprobe'",
    )


def test_what_modprobe_could_not_find_fails(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, FILES, {"lib": "usr/lib"})
    probe = ModprobeOutput((f"lib/modules/{RELEASE}/kernel/gone.ko",), ("/bin/false",), ("Module x not found",))
    assert told(check_modules(tree, RELEASE, probe)) == [
        (f"/lib/modules/{RELEASE}/kernel/gone.ko", "modprobe would load it, and it is not there"),
        ("modprobe", "Module x not found"),
        ("modprobe", "runs '/bin/false' in place of loading a module"),
    ]


def test_modules_dep_and_the_files_must_be_the_same(tmp_path: Path) -> None:
    files = FILES | {f"{BELOW}/updates/nvidia.ko": module()}
    del files[f"{BELOW}/kernel/b.ko"]
    tree = tree_of(tmp_path, files, {"lib": "usr/lib"})
    assert told(check_modules(tree, RELEASE, ModprobeOutput())) == [
        (f"/{BELOW}/kernel/b.ko", "modules.dep names it, and it is not there"),
        (f"/{BELOW}/updates/nvidia.ko", "modules.dep does not know it"),
    ]


def test_a_symbol_that_nobody_exports_fails_and_so_does_one_of_another_kernel(tmp_path: Path) -> None:
    modules, _ = read_modules(tree_of(tmp_path, FILES))
    del modules[f"{BELOW}/kernel/b.ko"]
    assert told(check_symbols(modules, {"printk": 7}, {})) == [
        (f"/{BELOW}/kernel/a.ko", "takes b_call, which neither kernel nor module exports"),
        (f"/{BELOW}/kernel/a.ko", "takes printk with CRC 00000001"),
    ]
    assert len(told(check_symbols(modules, {"printk": 7}, {"b_call": "weak"}))) == 1
    assert told(check_symbols(modules, {"printk": None}, {"b_call": "weak"})) == [], "a kernel without checksums"
    assert told(check_symbols(modules, None, {})) == [], "a kernel that does not tell"


def test_firmware_may_be_packed_and_must_be_there(tmp_path: Path) -> None:
    files = {path: content for path, content in FILES.items() if "firmware" not in path}
    tree = tree_of(tmp_path / "none", files)
    modules, _ = read_modules(tree)
    path = f"/{BELOW}/kernel/a.ko"
    assert told(check_firmware(tree, modules, {})) == [(path, "names firmware vendor/a.bin, which is not in the root")]
    assert told(check_firmware(tree, modules, {"vendor/*": "runs without"})) == []
    assert len(told(check_firmware(tree, modules, {"other/*": "runs without"}))) == 1
    packed = tree_of(tmp_path / "packed", files | {"usr/lib/firmware/vendor/a.bin.zst": "x"})
    assert told(check_firmware(packed, modules, {})) == []


def test_a_file_that_is_no_module_fails_and_the_others_are_read(tmp_path: Path) -> None:
    modules, unreadable = read_modules(tree_of(tmp_path, FILES | {f"{BELOW}/kernel/c.ko": "text"}))
    assert len(modules) == 2
    assert [each.object for each in unreadable] == [f"/{BELOW}/kernel/c.ko"]


def test_a_module_says_version_kernel_and_firmware() -> None:
    content = module(version="550.163.01", firmware=("x", "y"), imports={"printk": 0x9292_2222}, exports=("nv",))
    assert read_module(content) == KernelModule(
        {
            "vermagic": (f"{RELEASE} SMP mod_unload modversions ",),
            "depends": ("",),
            "license": ("GPL",),
            "version": ("550.163.01",),
            "firmware": ("x", "y"),
        },
        {"printk": 0x9292_2222},
        frozenset({"nv"}),
    )
    assert read_module(content).release == RELEASE


def test_of_a_module_without_checksums_the_symbols_that_it_takes_are_known() -> None:
    assert read_module(module(imports={"printk": 7, "kmalloc": 8}, checksums=False)).imports == {
        "printk": None,
        "kmalloc": None,
    }


def test_a_kernel_says_its_release_and_what_it_exports() -> None:
    content = kernel({"printk": 1, "kmalloc": 0xFFFFFFFF})
    assert read_release(content) == RELEASE
    assert read_exports(content) == {"printk": 1, "kmalloc": 0xFFFFFFFF}


@pytest.mark.parametrize("content", [b"", b"MZ" + bytes(4096), kernel({"printk": 1})[:0x640], bytes(0x300)])
def test_another_kernel_or_a_damaged_one_tells_nothing(content: bytes) -> None:
    assert read_exports(content) is None


@given(st.integers(0, 800), st.integers(0, 255))
@example(47, 255)
@example(40, 255)
def test_a_damaged_module_is_read_or_refused(at: int, value: int) -> None:
    content = bytearray(module(version="1", imports={"a": 1, "b": 2}, exports=("c",), firmware=("f",)))
    content[at % len(content)] = value
    try:
        read_module(bytes(content))
    except Refused as error:
        assert error.hint  # noqa: PT017 - either is right; no other exception is
