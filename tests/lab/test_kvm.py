"""KVM is used where it really boots Linux, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.machine import kvm
from lab.tools import Tools
from provisioner.api.machinery.errors import Refused
from provisioner.image.finished.store import part_files, read_manifest
from tests.tools import CACHE, missing


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kernel"
    path.write_bytes(b"a kernel")
    return path


@pytest.fixture
def device(tmp_path: Path) -> Path:
    path = tmp_path / "kvm"
    path.touch()
    return path


class FakeProbe:
    """Stands for the boot, and counts how often it was tried."""

    def __init__(self, works: bool) -> None:
        self.works = works
        self.boots = 0

    def __call__(self, kernel: Path, tools: Tools, accelerator: str, *, timeout_seconds: float) -> bool:
        assert accelerator == "kvm"
        self.boots += 1
        return self.works


@pytest.mark.parametrize(("works", "expected"), [(True, "kvm"), (False, "tcg")])
def test_the_answer_is_the_boot_and_is_kept(
    works: bool, expected: str, kernel: Path, device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = FakeProbe(works)
    monkeypatch.setattr(kvm, "boots", probe)
    tools = Tools(tmp_path / "tools-1")
    for _ in range(2):
        assert kvm.choose_accelerator(kernel, tools, tmp_path, device=device) == expected
    assert probe.boots == 1


def test_another_kernel_or_other_tools_are_asked_anew(
    kernel: Path, device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = FakeProbe(True)
    monkeypatch.setattr(kvm, "boots", probe)
    kvm.choose_accelerator(kernel, Tools(tmp_path / "tools-1"), tmp_path, device=device)
    kvm.choose_accelerator(kernel, Tools(tmp_path / "tools-2"), tmp_path, device=device)
    kernel.write_bytes(b"another kernel")
    kvm.choose_accelerator(kernel, Tools(tmp_path / "tools-2"), tmp_path, device=device)
    assert probe.boots == 3


def test_without_the_device_nothing_is_tried(kernel: Path, tmp_path: Path) -> None:
    absent = tmp_path / "no-kvm"
    assert kvm.choose_accelerator(kernel, Tools(tmp_path / "tools"), tmp_path, device=absent) == "tcg"


def test_what_does_not_boot_is_no_working_accelerator(kernel: Path, tools: Tools) -> None:
    assert not kvm.boots(kernel, tools, "tcg", timeout_seconds=20)


def test_a_kernel_that_boots_is_recognised(tools: Tools) -> None:
    """The probe itself, under emulation, where every kernel boots."""
    kernel = next(_kernels_for_x86_64(), None)
    if kernel is None:
        missing("a built image, whose kernel could boot,")
    assert kvm.boots(kernel, tools, "tcg", timeout_seconds=240)


def _kernels_for_x86_64() -> Iterator[Path]:
    """Of the images in the cache that this version reads: other versions leave theirs there, too."""
    for manifest in sorted((CACHE / "images").glob("*/manifest")):
        try:
            architecture = read_manifest(manifest.parent).architecture
        except Refused:
            continue
        if architecture == "x86_64":
            yield part_files(manifest.parent)["kernel"]
