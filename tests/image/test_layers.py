"""Layers: what lies over what, and what is packed anew."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.assembly.layers import LayerTree, begin_merge, expand, forget_old_layers, lay_over, pack
from provisioner.image.recipe import Recipe
from tests.tools import installed, need_root

OWNER = 977
"""A user id of the base's own, such as that of a package."""


@pytest.fixture(autouse=True)
def as_root() -> None:
    need_root("keep the owners of files")
    installed("mksquashfs")


def write(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


@pytest.fixture
def base(tmp_path: Path) -> LayerTree:
    root = write(
        tmp_path / "base", {"usr/lib/a.so": "a", "etc/app.conf": "base", "usr/bin/tool": "tool", "usr/bin/ctr": "ctr"}
    )
    (root / "lib").symlink_to("usr/lib")
    (root / "etc/mode").symlink_to("app.conf")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "root").mkdir()
    (root / "root").chmod(0o700)
    os.chown(root / "etc", OWNER, OWNER)
    (root / "usr/bin/tool").chmod(0o4755)
    return LayerTree("base", root, expand(root, ["usr/bin/ct*"]))


@pytest.fixture
def site(tmp_path: Path) -> LayerTree:
    root = write(tmp_path / "site", {"etc/app.conf": "site", "etc/mode": "a file", "srv/data/x": "x", "root/.keep": ""})
    for folder in ("etc", "srv", "srv/data", "root", "."):
        (root / folder).chmod(0o700)
    return LayerTree("site", root)


@pytest.fixture
def merged(base: LayerTree, site: LayerTree, tmp_path: Path) -> Path:
    begin_merge(base, tmp_path / "merged")
    lay_over(site, tmp_path / "merged")
    return tmp_path / "merged"


def described(root: Path) -> dict[str, tuple[object, ...]]:
    """All that a running system could see of a tree."""
    found: dict[str, tuple[object, ...]] = {}
    for path in (root, *root.rglob("*")):
        known = path.lstat()
        content: object = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (oct(known.st_mode), known.st_uid, known.st_gid, content)
    return found


@pytest.fixture
def mounted(base: LayerTree, site: LayerTree, merged: Path, recipe: Recipe, tmp_path: Path) -> Iterator[Path]:
    """The layers as a server mounts them."""
    files = [pack(recipe, tree, tmp_path / "cache").file for tree in (base, site)]
    mounts = [tmp_path / name for name in ("lower", "upper", "all")]
    done: list[Path] = []
    try:
        for file, target in zip(files, mounts, strict=False):
            target.mkdir()
            subprocess.run(["mount", "-o", "loop,ro", file, target], check=True)
            done.append(target)
        mounts[2].mkdir()
        options = f"lowerdir={mounts[1]}:{mounts[0]}"
        subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", mounts[2]], check=True)
        done.append(mounts[2])
        yield mounts[2]
    finally:
        for target in reversed(done):
            subprocess.run(["umount", target], check=True)


def test_what_gates_look_at_is_what_a_server_mounts(merged: Path, mounted: Path) -> None:
    seen = described(mounted)
    assert seen == described(merged)
    assert seen["etc/app.conf"][3] == b"site"
    assert seen["etc/mode"][3] == b"a file", "a file of a layer hides the link below"
    assert "usr/bin/ctr" not in seen, "what the build alone needs"
    assert seen["lib"][3] == "usr/lib"


def test_folders_that_a_layer_shares_stay_as_they_are_below_and_new_ones_can_be_read(mounted: Path) -> None:
    modes = {name: (mode, owner) for name, (mode, owner, _, _) in described(mounted).items()}
    assert modes["etc"] == (oct(stat.S_IFDIR | 0o755), OWNER)
    assert modes["root"] == (oct(stat.S_IFDIR | 0o700), 0)
    assert modes["tmp"] == (oct(stat.S_IFDIR | 0o1777), 0)
    assert modes["srv/data"] == modes["."] == (oct(stat.S_IFDIR | 0o755), 0)
    assert modes["usr/bin/tool"][0] == oct(stat.S_IFREG | 0o4755)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("lib/b.so", "/lib of another kind than the layers below, where it is a link to usr/lib"),
        ("etc/app.conf/x", "/etc/app.conf of another kind than the layers below, where it is a file"),
        ("tmp", "/tmp of another kind than the layers below, where it is a folder"),
    ],
)
def test_a_layer_that_would_hide_what_lies_below_is_refused(
    base: LayerTree, tmp_path: Path, file: str, words: str
) -> None:
    begin_merge(base, tmp_path / "merged")
    with pytest.raises(NeedsHuman, match=words):
        lay_over(LayerTree("site", write(tmp_path / "site", {file: ""})), tmp_path / "merged")


def test_a_link_in_place_of_a_folder_is_refused_too(base: LayerTree, tmp_path: Path) -> None:
    begin_merge(base, tmp_path / "merged")
    root = write(tmp_path / "site", {"etc/app.conf": ""})
    (root / "usr").symlink_to("etc")
    with pytest.raises(NeedsHuman, match="/usr of another kind"):
        lay_over(LayerTree("site", root), tmp_path / "merged")


def test_merging_changes_nothing_of_the_base(base: LayerTree, site: LayerTree, tmp_path: Path) -> None:
    before = described(base.root)
    begin_merge(replace(base, left_out=()), tmp_path / "merged")
    lay_over(site, tmp_path / "merged")
    (tmp_path / "merged/usr/lib/a.so").write_text("changed")
    assert described(base.root) == before


def touch(path: Path) -> None:
    path.write_text(path.read_text())


def test_a_layer_is_packed_again_when_its_content_differs_and_at_no_other_time(
    base: LayerTree, recipe: Recipe, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    first = pack(recipe, base, cache)
    assert not first.reused
    bytes_ = first.file.read_bytes()
    os.utime(base.root / "etc/app.conf", (1, 1))
    touch(base.root / "usr/lib/a.so")
    same = pack(recipe, base, cache)
    assert (same.file, same.reused) == (first.file, True), "times are not in it"
    again = pack(recipe, base, tmp_path / "another")
    assert (again.file.read_bytes(), again.reused) == (bytes_, False), "the same bytes, packed elsewhere"
    moved = LayerTree("base", base.root.rename(tmp_path / "elsewhere"), base.left_out)
    assert pack(recipe, moved, cache).file == first.file, "nor is the path"
    assert not pack(recipe, moved, cache, force=True).reused
    changes = [
        lambda root: (root / "etc/app.conf").write_text("!"),
        lambda root: (root / "etc/app.conf").chmod(0o600),
        lambda root: os.chown(root / "etc/app.conf", 1, 1),
        lambda root: (root / "etc/app.conf").rename(root / "etc/app.cfg"),
        lambda root: (root / "root").chmod(0o750),
        lambda root: ((root / "lib").unlink(), (root / "lib").symlink_to("usr")),
        lambda root: (root / "empty").mkdir(),
    ]
    seen = {first.file}
    for change in changes:
        change(moved.root)
        packed = pack(recipe, moved, cache)
        assert not packed.reused
        seen.add(packed.file)
    assert len(seen) == 1 + len(changes)
    assert pack(replace(recipe, squashfs_level=1), moved, cache).file not in seen
    assert pack(recipe, replace(moved, left_out=()), cache).file not in seen


def test_layers_that_nobody_used_for_long_are_forgotten(tmp_path: Path) -> None:
    cache = write(tmp_path / "cache", {f"{number:03}.squashfs": "x" for number in range(40)})
    for number in range(40):
        os.utime(cache / f"{number:03}.squashfs", (number, number))
    forget_old_layers(cache)
    assert [path.name for path in sorted(cache.iterdir())] == [f"{number:03}.squashfs" for number in range(16, 40)]
