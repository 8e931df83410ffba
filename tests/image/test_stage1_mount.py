"""The layers of a root mounted as one, by the real stage-1 and the kernel that runs here."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.image.stage1_shell import Stage1
from tests.signed_image import digest

INIT = {"sbin/init": "#!/bin/sh\n"}


@pytest.fixture
def pack(tmp_path: Path) -> Callable[[str, Mapping[str, str]], bytes]:
    """A squashfs of these files, all of them programs."""

    def make(name: str, files: Mapping[str, str]) -> bytes:
        for path, content in files.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
            file.chmod(0o755)
        packed = tmp_path / f"{name}.squashfs"
        subprocess.run(["mksquashfs", tmp_path / name, packed, "-quiet", "-no-progress"], check=True)
        return packed.read_bytes()

    return make


Pack = Callable[[str, Mapping[str, str]], bytes]


def test_a_layer_covers_what_lies_under_it(stage1: Stage1, pack: Pack) -> None:
    layers = {
        "base": pack("base", {**INIT, "etc/a": "base\n", "etc/b": "base\n", "etc/c": "base\n"}),
        "driver": pack("driver", {"etc/b": "driver\n", "etc/c": "driver\n"}),
        "site": pack("site", {"etc/c": "site\n"}),
    }
    said = stage1.mount(
        layers, "cat /sysroot/etc/a /sysroot/etc/b /sysroot/etc/c; echo x >/sysroot/etc/a && echo written"
    )
    assert said == "base\ndriver\nsite\nwritten\n"


def test_where_each_layer_can_be_read_is_left_for_the_agent(stage1: Stage1, pack: Pack) -> None:
    layers = {"base": pack("base", INIT), "site": pack("site", {"etc/c": "site\n"})}
    read = "while read -r sha256 bytes device; do head -c $bytes $device | sha256sum; done </run/stage1/mounted"
    *told, first, second = stage1.mount(layers, f"cat /run/stage1/mounted; {read}").splitlines()
    for line, content in zip(told, layers.values(), strict=True):
        assert re.fullmatch(rf"{digest(content)} {len(content)} /dev/loop\d+", line)
    assert [first.split()[0], second.split()[0]] == [digest(content) for content in layers.values()]


def test_a_layer_that_is_no_file_system_is_named_and_nothing_stays_mounted(stage1: Stage1, pack: Pack) -> None:
    layers = {"base": pack("base", INIT), "driver": b"\0" * 8192, "site": pack("site", {"etc/c": "site\n"})}
    said = stage1.mount(layers, "echo mounted")
    assert "object    layer driver of sha256-x\n  observed  it cannot be mounted" in said
    assert "mounted\n" not in said.replace("it cannot be mounted\n", "")
    assert " /ram/" not in stage1.left_mounted


def test_layers_without_an_init_are_no_root(stage1: Stage1, pack: Pack) -> None:
    layers = {"base": pack("base", {"etc/a": "base\n"}), "site": pack("site", {"etc/c": "site\n"})}
    said = stage1.mount(layers, "echo mounted")
    assert "object    root of sha256-x" in said
    assert "have no /sbin/init" in said
    assert not re.search(" (/sysroot|/ram/.*) ", stage1.left_mounted)


def test_an_init_that_a_layer_above_brings_is_one(stage1: Stage1, pack: Pack) -> None:
    layers = {"base": pack("base", {"etc/a": "base\n"}), "site": pack("site", INIT)}
    assert stage1.mount(layers, "echo mounted") == "mounted\n"
    assert " /sysroot " in stage1.left_mounted
