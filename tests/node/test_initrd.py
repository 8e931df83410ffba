"""The initramfs of the next kernel, unpacked by another program than the one that wrote it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from provisioner.node.image.initrd import after_root, before_root

STAGE1_BYTES = 5_001
KEY = "0123456789abcdef" * 4


@pytest.mark.parametrize("root", [b"r", b"ro", b"root", b"squashfs" * 1001])
def test_behind_the_images_stage_1_lies_an_archive_with_manifest_root_and_request_key(
    tmp_path: Path, root: bytes
) -> None:
    manifest, signature = b"provisioner-image 1\n", b"untrusted comment: x\nRWQ\n"
    between = before_root(STAGE1_BYTES, manifest, signature, len(root))
    assert (STAGE1_BYTES + len(between) - len(between.lstrip(b"\0"))) % 4 == 0
    archive = between.lstrip(b"\0") + root + after_root(len(root), KEY)
    subprocess.run(["cpio", "-i", "-d", "--quiet"], input=archive, cwd=tmp_path, check=True)
    assert {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")} == {
        "staged",
        "staged/manifest",
        "staged/manifest.sig",
        "staged/root.squashfs",
        "staged/request-key",
    }
    assert (tmp_path / "staged/request-key").read_text() == f"{KEY}\n"
    assert (tmp_path / "staged/request-key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "staged/root.squashfs").read_bytes() == root
    assert (tmp_path / "staged/manifest").read_bytes() == manifest
    assert (tmp_path / "staged/manifest.sig").read_bytes() == signature
    assert (tmp_path / "staged").stat().st_mode & 0o777 == 0o700
