"""The folders that become layers: files of Debian that a recipe takes, the libraries that they and the wheels are
linked with, and what Debian's own scripts would have made of certificates."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from artefacts.recipe import ContainerRecipe, Machine
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.gates.allowed import matching
from provisioner.image.tools.elf import Linkage, read_linkage

_TRIPLETS: Final = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_MERGED: Final = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_CERTIFICATES: Final = "usr/share/ca-certificates/mozilla"
BUNDLE: Final = "etc/ssl/certs/ca-certificates.crt"


def stage_debian(recipe: ContainerRecipe, debian: Path, target: Path) -> None:
    """Lay what the recipe takes of the unpacked packages into `target`, with its own files and folders.

    Raises: NeedsHuman if a pattern of the recipe matches nothing.
    """
    there = list(_files(debian))
    left = {path for pattern in recipe.leave for path in _found(there, pattern, recipe, "leaves")}
    for pattern in recipe.take:
        for path in _found(there, pattern, recipe, "takes"):
            if path not in left:
                copy(debian, path, target)
    for link, folder in _MERGED.items():
        (target / folder).mkdir(parents=True, exist_ok=True)
        (target / link).symlink_to(folder)
    for name, text in recipe.files.items():
        write(target / name, text.encode())
    for name, mode in recipe.folders.items():
        (target / name).mkdir(parents=True)
        (target / name).chmod(mode)
    write(target / BUNDLE, b"".join(file.read_bytes() for file in sorted((debian / _CERTIFICATES).glob("*.crt"))))


def add_libraries(stages: Sequence[Path], debian: Path, machine: Machine) -> None:
    """Copy what the programs and libraries in `stages` are linked with from the unpacked packages into the first one.

    As ld.so looks for it: the folders that a file names itself, then the usual ones; without a cache. Source: ld.so(8).
    Raises: NeedsHuman for a library that no package brings.
    """
    usual = [PurePosixPath(f"usr/lib/{_TRIPLETS[machine]}"), PurePosixPath("usr/lib")]
    waiting = [(stage, path) for stage in stages for path in _files(stage) if _is_program(stage / path)]
    while waiting:
        stage, path = waiting.pop()
        linkage = read_linkage((stage / path).read_bytes())
        for name, folders in _needs(linkage, PurePosixPath(path), usual):
            candidates = [str(folder / name) for folder in folders]
            if any(os.path.lexists(each / candidate) for each in stages for candidate in candidates):
                continue
            found = next((candidate for candidate in candidates if os.path.lexists(debian / candidate)), None)
            if found is None:
                raise NeedsHuman(
                    f"/{path} needs {name}, which none of the recipe's packages brings",
                    hint="add its package to debian.packages, or leave the file",
                )
            waiting += [(stages[0], added) for added in copy(debian, found, stages[0])]


def copy(root: Path, path: str, target: Path) -> list[str]:
    """Copy a file of `root`, and what it leads to if it is a link. Returns: the paths that were copied."""
    if os.path.lexists(target / path):
        return []
    source = root / path
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    if not source.is_symlink():
        shutil.copyfile(source, target / path)
        (target / path).chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)
        return [path]
    to = str(source.readlink())
    (target / path).symlink_to(to)
    leads = _normal(to.lstrip("/") if to.startswith("/") else str(PurePosixPath(path).parent / to))
    return copy(root, leads, target) if (root / leads).is_file() else []


def write(file: Path, content: bytes, mode: int = 0o644) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    file.chmod(mode)


def _needs(
    linkage: Linkage, path: PurePosixPath, usual: Iterable[PurePosixPath]
) -> Iterable[tuple[str, list[PurePosixPath]]]:
    """Each library and loader, with the folders in which it may be."""
    named = (folder.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(path.parent)) for folder in linkage.search)
    own = [PurePosixPath(_normal(folder)) for folder in named]
    for name in linkage.needed:
        yield name, [*own, *usual]
    if linkage.interpreter:
        loader = PurePosixPath(_merged(linkage.interpreter.lstrip("/")))
        yield loader.name, [loader.parent]


def _merged(path: str) -> str:
    first, _, rest = path.partition("/")
    return f"{_MERGED[first]}/{rest}" if first in _MERGED else path


def _normal(path: str) -> str:
    return _merged(os.path.normpath(path.lstrip("/")))


def _is_program(file: Path) -> bool:
    if file.is_symlink():
        return False
    with file.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def _files(root: Path) -> Iterable[str]:
    """Files and links below `root`, relative to it; a link to a folder is not entered."""
    for folder, folders, files in os.walk(root):
        for name in (*files, *(each for each in folders if (Path(folder) / each).is_symlink())):
            yield str((Path(folder) / name).relative_to(root))


def _found(there: Sequence[str], pattern: str, recipe: ContainerRecipe, does: str) -> list[str]:
    found = matching(there, pattern)
    if not found:
        raise NeedsHuman(
            f"recipe {recipe.name} {does} {pattern!r}, and no package has such a file",
            hint="correct the pattern, or debian.packages",
        )
    return found
