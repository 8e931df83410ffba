from __future__ import annotations

import lzma
from pathlib import Path, PurePosixPath

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.tools.modules import (
    KernelModules,
    module_name,
    read_info,
    render_aliases,
    render_dependencies,
    select,
)


def module(*strings: str) -> bytes:
    return b"\x7fELF code\0" + b"\0".join(s.encode() for s in strings) + b"\0 more code"


@pytest.fixture
def kernel(tmp_path: Path) -> KernelModules:
    net = tmp_path / "kernel/drivers/net"
    net.mkdir(parents=True)
    (net / "e1000e.ko.xz").write_bytes(lzma.compress(module("depends=ptp", "alias=pci:v00008086d000010D3sv*")))
    (net / "ptp.ko").write_bytes(module("depends=pps-core"))
    (net / "pps-core.ko").write_bytes(module("depends="))
    (net / "nf-nat.ko").write_bytes(module("depends=", "softdep=pre: ptp post: absent"))
    (net / "broken.ko").write_bytes(module("depends=not_there"))
    return KernelModules(tmp_path)


def test_modules_bring_what_they_depend_on_however_it_is_spelt(kernel: KernelModules) -> None:
    chosen = kernel.choose(["e1000*"])
    assert list(chosen) == ["e1000e", "pps_core", "ptp"]
    assert chosen["e1000e"].content.startswith(b"\x7fELF"), "unpacked"
    assert str(chosen["e1000e"].path) == "kernel/drivers/net/e1000e.ko"
    assert list(kernel.choose(["nf_nat"])) == ["nf_nat", "pps_core", "ptp"], "a soft dependency that exists comes along"


def test_an_algorithm_that_is_asked_for_by_its_alias_comes_in_its_generic_form(tmp_path: Path) -> None:
    (tmp_path / "libcrc32c.ko").write_bytes(module("depends=", "softdep=pre: crc32c"))
    (tmp_path / "jbd2.ko").write_bytes(module("depends=", "softdep=pre: crypto-crc32c"))
    (tmp_path / "crc32c_generic.ko").write_bytes(module("depends=", "alias=crc32c"))
    kernel = KernelModules(tmp_path)
    assert list(kernel.choose(["libcrc32c"])) == ["crc32c_generic", "libcrc32c"]
    assert list(kernel.choose(["jbd2"])) == ["crc32c_generic", "jbd2"]


def test_modprobe_reads_in_which_order_to_load(kernel: KernelModules) -> None:
    chosen = kernel.choose(["e1000e"])
    assert render_dependencies(chosen).splitlines() == [
        "kernel/drivers/net/e1000e.ko: kernel/drivers/net/ptp.ko kernel/drivers/net/pps-core.ko",
        "kernel/drivers/net/pps-core.ko:",
        "kernel/drivers/net/ptp.ko: kernel/drivers/net/pps-core.ko",
    ]
    assert render_aliases(chosen) == "alias pci:v00008086d000010D3sv* e1000e\n"


def test_a_missing_dependency_is_named(kernel: KernelModules) -> None:
    with pytest.raises(NeedsHuman, match="'not_there' is missing"):
        kernel.choose(["broken"])


def test_names_and_patterns_are_the_kernels() -> None:
    assert module_name(PurePosixPath("a/8139-too.ko.zst")) == "8139_too"
    assert select(["ip_set_hash", "ip_vs", "xt_set"], ["ip-set*", "absent"]) == ["ip_set_hash"]
    assert read_info(module("alias=a", "alias=b"))["alias"] == ["a", "b"]
