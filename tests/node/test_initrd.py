"""The initramfs of the next kernel, unpacked by another program than the one that wrote it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provisioner.node.image.initrd import after_layer, after_layers, before_layer, before_layers

pytestmark = pytest.mark.programs

STAGE1_BYTES = 5_001
KEY = "0123456789abcdef" * 4
LAYERS = [
    {"root.squashfs": b"r"},
    {"root.squashfs": b"ro"},
    {"sha256-aa": b"base", "sha256-bb": b"d", "sha256-cc": b"squashfs" * 1001 + b"s"},
]


@pytest.mark.parametrize("layers", LAYERS)
def test_behind_the_images_stage_1_lies_an_archive_with_manifest_layers_and_request_key(
    tmp_path: Path, layers: dict[str, bytes]
) -> None:
    manifest, signature = b"provisioner-image 2\n", b"untrusted comment: x\nRWQ\n"
    between = before_layers(STAGE1_BYTES, manifest, signature)
    assert (STAGE1_BYTES + len(between) - len(between.lstrip(b"\0"))) % 4 == 0
    archive = between.lstrip(b"\0")
    for name, content in layers.items():
        archive += before_layer(name, len(content)) + content + after_layer(len(content))
    archive += after_layers(KEY)
    subprocess.run(["cpio", "-i", "-d", "--quiet"], input=archive, cwd=tmp_path, check=True)
    files = {str(file.relative_to(tmp_path)): file for file in tmp_path.rglob("*")}
    assert files.pop("staged").stat().st_mode & 0o777 == 0o700
    assert {name: file.read_bytes() for name, file in files.items()} == {
        "staged/manifest": manifest,
        "staged/manifest.sig": signature,
        "staged/request-key": f"{KEY}\n".encode(),
        **{f"staged/{name}": content for name, content in layers.items()},
    }
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}
    assert len({file.stat().st_ino for file in files.values()}) == len(files), "none is another's hard link"
