"""Against mksquashfs itself: what it packs is what is read, and the bytes add up to the file."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.image.gates.read.squashfs import Squashfs, read_squashfs
from tests.image.gates.samples import EPOCH
from tests.tools import installed

NOISE = random.Random(7).randbytes(700_000)


def packed(folder: Path, root: Path, *more: str) -> Path:
    target = folder / "packed.squashfs"
    command = [installed("mksquashfs"), root, target, "-noappend", "-quiet", "-no-progress", "-no-xattrs"]
    command += ["-all-time", str(EPOCH), "-mkfs-time", str(EPOCH), *more]
    subprocess.run(command, check=True)
    return target


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Large and small files, two that are equal, an empty one, a sparse one, a link, a name that is not ASCII."""
    root = tmp_path / "root"
    for number in range(300):
        file = root / f"many/{number % 7}/file-{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(NOISE[number : number + 40 + number])
    (root / "noise").write_bytes(NOISE)
    (root / "same").write_bytes(NOISE)
    (root / "text").write_bytes(b"x" * 900_000)
    (root / "empty").write_bytes(b"")
    (root / "hölle").write_text("x")
    with (root / "sparse").open("wb") as stream:
        stream.truncate(1_000_000)
    (root / "link").symlink_to("noise")
    (root / "tool").write_bytes(b"#!/bin/sh\n")
    (root / "tool").chmod(0o4755)
    (root / "void").mkdir()
    return root


@pytest.mark.parametrize("options", [["-comp", "zstd", "-b", "131072"], ["-comp", "gzip"], ["-comp", "xz"]])
def test_paths_sizes_and_modes_are_those_of_the_tree(tmp_path: Path, root: Path, options: list[str]) -> None:
    found = {each.path: each for each in read_squashfs(packed(tmp_path, root, *options)).files}
    there = {str(path.relative_to(root)): path for path in root.rglob("*")}
    assert found.keys() == there.keys()
    for path, file in there.items():
        is_file = file.is_file() and not file.is_symlink()
        assert found[path].size_bytes == (file.stat().st_size if is_file else 0), path
        assert found[path].mode == file.lstat().st_mode & 0o7777, path
        assert found[path].changed == EPOCH


@pytest.mark.parametrize("options", [["-comp", "zstd", "-b", "131072"], ["-no-fragments"], ["-noI", "-noD", "-noF"]])
def test_the_files_bytes_add_up_to_nearly_all_of_the_squashfs(tmp_path: Path, root: Path, options: list[str]) -> None:
    file = packed(tmp_path, root, *options)
    read = read_squashfs(file)
    assert read.made == EPOCH
    total, size = sum(each.packed_bytes for each in read.files), file.stat().st_size
    assert 0.9 * size < total <= size, "the rest is names and tables"
    sizes = {each.path: each.packed_bytes for each in read.files}
    assert sorted((sizes["noise"] > 600_000, sizes["same"] > 600_000)) == [False, True], "equal files lie there once"
    assert sizes["sparse"] == sizes["empty"] == sizes["link"] == sizes["void"] == 0


def test_an_empty_squashfs_has_no_files(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert read_squashfs(packed(tmp_path, tmp_path / "root")) == Squashfs(EPOCH, ())


@pytest.mark.parametrize("content", [b"", b"hsqs", bytes(4096), b"hsqs" + bytes(4096)])
def test_what_is_no_squashfs_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Refused, match="no squashfs"):
        read_squashfs(tmp_path / "file")


def test_a_damaged_squashfs_is_read_or_refused_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "root/folder").mkdir(parents=True)
    (tmp_path / "root/folder/file").write_bytes(NOISE[:5000])
    content = packed(tmp_path, tmp_path / "root", "-comp", "gzip").read_bytes()
    at = list(range(96)) + list(range(len(content) - 400, len(content)))
    for position in random.Random(3).sample(at, 150):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        (tmp_path / "damaged").write_bytes(damaged)
        try:
            read_squashfs(tmp_path / "damaged")
        except Refused as error:
            assert "damaged" in str(error)  # noqa: PT017 - either is right; no other exception is
