"""Layers: folders that lie over one another, each packed into a squashfs of its own, and none of them twice.

In the running system the kernel lays them over one another (overlayfs). There the uppermost layer that has a folder
decides about its owner and mode, and what is no folder hides all that is below: so a layer takes over the folders of
those beneath it as they are, and a file of one is never a folder of another.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.inputs import Fingerprint
from provisioner.image.plan import squashfs_command
from provisioner.image.recipe import Recipe
from provisioner.image.tools.cache import locked
from provisioner.image.tools.command import clean_environment, run

MERGED: Final = "system"
"""The one layer of an image whose recipe wants all of them packed into one."""
_KEPT: Final = 24


@dataclass(frozen=True)
class LayerTree:
    """A layer before it is packed. `left_out`: paths below its root that it has and the layer has not."""

    name: str
    root: Path
    left_out: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PackedLayer:
    """A layer's squashfs in the cache. `reused`: it had been packed from the same content before."""

    name: str
    file: Path
    reused: bool


def expand(root: Path, patterns: Iterable[str]) -> tuple[Path, ...]:
    """What the patterns match below `root`, as paths relative to it, sorted."""
    return tuple(sorted({found.relative_to(root) for pattern in patterns for found in root.glob(pattern)}))


def begin_merge(lowest: LayerTree, target: Path) -> None:
    """Fill `target`, which must not exist, with a copy of the lowest layer."""
    target.mkdir()
    copy_over(lowest.root, target)
    for path in lowest.left_out:
        found = target / path
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found)
        else:
            found.unlink()


def copy_over(source: Path, target: Path) -> None:
    """Copy what is in the folder `source` into the folder `target`; of one name, that of `source` stays."""
    run(
        ["cp", "--archive", "--reflink=auto", "--remove-destination", f"{source}/.", str(target)],
        hint="check the free space of the cache's disk",
    )


def lay_over(tree: LayerTree, lower: Path) -> None:
    """Copy a layer over `lower`, the merged ones beneath it, once its folders have the owner and mode that they have
    there; those that are new may be read by all.

    Raises: NeedsHuman if one of the two has a folder where the other has a file or a link.
    """
    for folder, folders, files in os.walk(tree.root):
        below = Path(folder).relative_to(tree.root)
        for name in [".", *folders]:
            _take_over(tree, lower, below / name)
        for name in files:
            hidden = lower / below / name
            if hidden.is_dir() and not hidden.is_symlink():
                raise _hides(tree, below / name, "a folder")
    copy_over(tree.root, lower)


def _take_over(tree: LayerTree, lower: Path, path: Path) -> None:
    own, found = tree.root / path, lower / path
    if own.is_symlink():
        if found.is_dir() and not found.is_symlink():
            raise _hides(tree, path, "a folder")
        return
    if found.is_symlink() or found.is_file():
        raise _hides(tree, path, f"a link to {found.readlink()}" if found.is_symlink() else "a file")
    if found.is_dir():
        known = found.stat()
        os.chown(own, known.st_uid, known.st_gid)
        own.chmod(stat.S_IMODE(known.st_mode))
    else:
        own.chmod(stat.S_IMODE(own.stat().st_mode) | 0o755)


def _hides(tree: LayerTree, path: Path, what: str) -> NeedsHuman:
    return NeedsHuman(
        f"layer {tree.name!r} has /{path} of another kind than the layers below, where it is {what}",
        hint="write the path as it is below, such as usr/lib in place of lib, or take it out of one of the two",
    )


def pack(recipe: Recipe, tree: LayerTree, cache: Path, *, force: bool = False) -> PackedLayer:
    """The squashfs of a layer, packed or found in `cache` by the layer's content."""
    file = cache / f"{_fingerprint(recipe, tree)}.squashfs"
    with locked(cache / f".{file.stem}.lock"):
        if file.exists() and not force:
            os.utime(file)
            return PackedLayer(tree.name, file, reused=True)
        partial = file.with_suffix(".partial")
        environment = clean_environment(recipe.source_date_epoch)
        del environment["SOURCE_DATE_EPOCH"]  # mksquashfs refuses it beside its own options for times
        run(
            squashfs_command(recipe, tree.root, partial, tree.left_out),
            hint="check the free space of the cache's disk",
            environment=environment,
        )
        partial.rename(file)
    return PackedLayer(tree.name, file, reused=False)


def forget_old_layers(cache: Path) -> None:
    """Keep the layers that were used last."""
    whole = sorted(cache.glob("*.squashfs"), key=lambda file: file.stat().st_mtime)
    for file in whole[:-_KEPT]:
        file.unlink(missing_ok=True)
        (cache / f".{file.stem}.lock").unlink(missing_ok=True)


def _fingerprint(recipe: Recipe, tree: LayerTree) -> str:
    """Of all that decides about the bytes of its squashfs, whoever made the tree and from what."""
    fingerprint = Fingerprint("layer")
    fingerprint.add("command", repr(squashfs_command(recipe, Path(), Path(), tree.left_out)).encode())
    for path in sorted((tree.root, *tree.root.rglob("*"))):
        known = path.lstat()
        kind = (stat.S_IFMT(known.st_mode), stat.S_IMODE(known.st_mode), known.st_uid, known.st_gid, known.st_rdev)
        name = str(path.relative_to(tree.root))
        fingerprint.add(name, repr(kind).encode())
        if path.is_symlink():
            fingerprint.add(name, os.fsencode(path.readlink()))
        elif path.is_file():
            fingerprint.add_file(name, path)
    return fingerprint.hexdigest()
