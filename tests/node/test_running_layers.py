"""Layers that run already are copied from the block devices that stage-1 has named, and none is believed."""

from __future__ import annotations

import io
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.node.image.fetch import CHECK_BYTES
from provisioner.node.image.manifest import ImageError, ImageFile
from provisioner.node.image.running_layers import copy_layer, read_running_layers
from tests.node.made_machine import write
from tests.signed_image import digest
from tests.tools import need_root

CONTENT = os.urandom(4096 * 500)
WANTED = ImageFile("layer driver", "parts/x", digest(CONTENT), len(CONTENT))
BEGUN = b"what stands before it"


def pass_check() -> None: ...


@pytest.fixture
def target() -> io.BytesIO:
    """A file that the layer is appended to."""
    file = io.BytesIO()
    file.write(BEGUN)
    return file


def test_the_lines_of_stage_1_are_read_and_anything_else_is_passed_over(tmp_path: Path) -> None:
    base, driver = digest(b"base"), digest(b"driver")
    lines = [
        f"{base} 4096 /dev/loop0",
        f"{driver} 8192 /dev/loop17",
        f"{digest(b'1')} 4096 ",
        f"{digest(b'2')} 4096 /dev/../etc/shadow",
        f"{digest(b'3')} 4096 /dev/sda",
        f"{digest(b'4')} 04096 /dev/loop1",
        f"{digest(b'5')} /dev/loop1",
        "\xff nonsense",
        "",
    ]
    write(tmp_path, "run/provisioner/layers", "\n".join(lines))
    assert read_running_layers(str(tmp_path)) == {
        (base, 4096): f"{tmp_path}/dev/loop0",
        (driver, 8192): f"{tmp_path}/dev/loop17",
    }


def test_a_system_whose_stage_1_named_no_layers_has_none_to_copy(tmp_path: Path) -> None:
    assert read_running_layers(str(tmp_path)) == {}


@pytest.fixture
def loop_device(tmp_path: Path) -> Iterator[Callable[[bytes], str]]:
    """Makes a real loop device of a content, as stage-1 does."""
    need_root("make a loop device")
    devices: list[str] = []

    def make(content: bytes) -> str:
        file = tmp_path / f"layer-{len(devices)}"
        file.write_bytes(content)
        done = subprocess.run(
            ["losetup", "--find", "--show", "--read-only", str(file)], capture_output=True, text=True, check=True
        )
        devices.append(done.stdout.strip())
        return devices[-1]

    yield make
    for device in devices:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_a_layer_is_copied_from_its_loop_device(loop_device: Callable[[bytes], str], target: io.BytesIO) -> None:
    assert copy_layer(loop_device(CONTENT), WANTED, target, pass_check) == ""
    assert target.getvalue() == BEGUN + CONTENT
    assert target.tell() == len(target.getvalue()), "what comes next comes behind it"


LYING = {
    "another content": (CONTENT[:5000] + bytes([CONTENT[5000] ^ 1]) + CONTENT[5001:], "is altered: sha256"),
    "less": (CONTENT[:-4096], f"is truncated: {len(CONTENT) - 4096} of {len(CONTENT)} bytes"),
    "nothing": (b"", f"is truncated: 0 of {len(CONTENT)} bytes"),
}


@pytest.mark.parametrize("name", LYING)
def test_of_a_device_that_lies_nothing_remains(tmp_path: Path, target: io.BytesIO, name: str) -> None:
    content, words = LYING[name]
    device = tmp_path / "loop0"
    device.write_bytes(content)
    assert words in copy_layer(str(device), WANTED, target, pass_check)
    assert target.getvalue() == BEGUN
    assert target.tell() == len(BEGUN)


def test_a_device_may_hold_more_than_the_layer(tmp_path: Path, target: io.BytesIO) -> None:
    device = tmp_path / "loop0"
    device.write_bytes(CONTENT + b"\0" * 512)
    assert copy_layer(str(device), WANTED, target, pass_check) == ""
    assert target.getvalue() == BEGUN + CONTENT


def test_a_device_that_is_gone_is_named(tmp_path: Path, target: io.BytesIO) -> None:
    assert "/loop0: " in copy_layer(str(tmp_path / "loop0"), WANTED, target, pass_check)
    assert target.getvalue() == BEGUN


@pytest.mark.parametrize("left", [CONTENT, CONTENT + b"what came after it"])
def test_what_lies_there_whole_is_not_copied_again(tmp_path: Path, target: io.BytesIO, left: bytes) -> None:
    target.write(left)
    target.seek(len(BEGUN))
    assert copy_layer(str(tmp_path / "not looked at"), WANTED, target, pass_check) == ""
    assert target.tell() == len(BEGUN) + len(CONTENT)


def test_memory_that_becomes_short_ends_a_copy(tmp_path: Path, target: io.BytesIO) -> None:
    size = CHECK_BYTES + (1 << 20)
    device = tmp_path / "loop0"
    with device.open("wb") as file:
        file.truncate(size)

    def is_short() -> None:
        raise ImageError("memory: it is short")

    with pytest.raises(ImageError, match="it is short"):
        copy_layer(str(device), ImageFile("layer driver", "x", digest(b"\0" * size), size), target, is_short)
