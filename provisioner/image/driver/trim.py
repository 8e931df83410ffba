"""What of the unpacked packages goes into the layer: files move to where programs look, and what a rule keeps stays.

NVIDIA's licence allows passing its files on only unmodified, so none is stripped, packed or edited here.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver_recipe import FileMove, Firmware
from provisioner.image.tools.tables import RecipeGroup

_MERGED = ("bin", "lib", "lib64", "sbin")
"""Of the base these are links into /usr: a folder of that name in a layer above would hide them."""


def moved(path: str, moves: Sequence[FileMove]) -> str:
    """Where a file of that path goes; of several moves that match its folder, the first counts.

    >>> moved("usr/lib/x86_64-linux-gnu/nvidia/current/a.so", [Move("", "usr/lib/*/nvidia/current", "usr/lib/*")])
    'usr/lib/x86_64-linux-gnu/a.so'
    """
    parts = path.split("/")
    if parts[0] in _MERGED:
        parts = ["usr", *parts]
    for move in moves:
        pattern = move.source.split("/")
        folder, rest = parts[: len(pattern)], parts[len(pattern) :]
        if rest and all(fnmatchcase(part, each) for part, each in zip(folder, pattern, strict=False)):
            stars = iter([part for part, each in zip(folder, pattern, strict=True) if each == "*"])
            return "/".join([*(next(stars) if part == "*" else part for part in move.target.split("/")), *rest])
    return "/".join(parts)


def lay_out(unpacked: Path, moves: Sequence[FileMove], target: Path) -> None:
    """Bring all files of `unpacked` to where they belong below `target`.

    Raises: NeedsHuman if two files would have one name.
    """
    for source in sorted(unpacked.rglob("*")):
        if source.is_dir() and not source.is_symlink():
            continue
        goes = target / moved(source.relative_to(unpacked).as_posix(), moves)
        if goes.exists() or goes.is_symlink():
            raise NeedsHuman(f"two files of the driver would be {goes.relative_to(target)}", hint="correct driver.move")
        goes.parent.mkdir(parents=True, exist_ok=True)
        source.rename(goes)


def firmware_rules(firmware: Iterable[Firmware]) -> tuple[RecipeGroup, ...]:
    """The rules that keep firmware, one for each of its groups."""
    return tuple(
        RecipeGroup(each.reason, tuple(f"usr/lib/firmware/nvidia/*/{name}" for name in each.files)) for each in firmware
    )


def keep(laid_out: Path, rules: Iterable[RecipeGroup], target: Path) -> None:
    """Copy what a rule matches into `target`, folders with all that is in them, links as links.

    Raises: NeedsHuman naming a rule that matches nothing: it was meant to.
    """
    for rule in rules:
        found = {file for pattern in rule.names for match in laid_out.glob(pattern) for file in _files(match)}
        if not found:
            raise NeedsHuman(
                f"the driver's packages have nothing of {', '.join(rule.names)} ({rule.why})",
                hint="correct driver.keep or driver.firmware of the recipe, or its packages",
            )
        for file in sorted(found):
            goes = target / file.relative_to(laid_out)
            goes.parent.mkdir(parents=True, exist_ok=True)
            if not goes.is_symlink() and not goes.exists():
                shutil.copy2(file, goes, follow_symlinks=False)


def _files(path: Path) -> list[Path]:
    if path.is_symlink() or not path.is_dir():
        return [path]
    return [file for file in path.rglob("*") if file.is_symlink() or not file.is_dir()]


def clear_setuid(root: Path, rules: Iterable[RecipeGroup]) -> None:
    """Take the set-uid and set-gid bits of what the rules match."""
    for rule in rules:
        for pattern in rule.names:
            for file in root.glob(pattern):
                file.chmod(file.stat().st_mode & 0o777)


def must_have_targets(root: Path, base: Path) -> None:
    """Raises: NeedsHuman if a link of the layer leads to nothing in it nor in the base."""
    for link in sorted(each for each in root.rglob("*") if each.is_symlink()):
        where = link.readlink()
        inside = where.relative_to("/") if where.is_absolute() else link.relative_to(root).parent / where
        if str(where) != "/dev/null" and not any((tree / inside).exists() for tree in (root, base)):
            raise NeedsHuman(
                f"{link.relative_to(root)} of the driver leads to {where}, which is not there",
                hint="keep its target as well, in driver.keep of the recipe",
            )
