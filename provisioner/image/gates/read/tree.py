"""What gates judge: every file of a root, read once.

A file's content is held only while it is looked at; what is kept of it is what some gate asks for.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from provisioner.api.machinery.errors import NotFound, Refused
from provisioner.image.gates.packages.go_binary import GoBuild, read_go_build
from provisioner.image.gates.read.secrets import find_secrets
from provisioner.image.tools.elf import Linkage, read_linkage

Kind = Literal["file", "folder", "link", "other"]

_KINDS: Final[dict[int, Kind]] = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_ELF: Final = b"\x7fELF"
_RELOCATABLE: Final = 1
_LINKS: Final = 40
"""As many links as Linux follows in one path."""


@dataclass(frozen=True, kw_only=True)
class TreeEntry:
    """One file, folder or link. `mode`: permissions with set-uid, set-gid and sticky bit, as `chmod` takes them.

    Of files: `sha256` (hexadecimal), `head` (the first 64 bytes), `linkage` of ELF programs and libraries, `damaged`
    why an ELF file could not be read, `go` what Go says of a program that it built, `capability` the extended
    attribute, `secrets` what looks like some.
    """

    path: str
    kind: Kind
    mode: int
    size_bytes: int = 0
    target: str = ""
    sha256: str = ""
    head: bytes = b""
    linkage: Linkage | None = None
    go: GoBuild | None = None
    damaged: str = ""
    capability: bytes = b""
    secrets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tree:
    """All entries by path relative to the root, sorted."""

    root: Path
    entries: Mapping[str, TreeEntry]

    def files(self) -> Iterator[TreeEntry]:
        return (entry for entry in self.entries.values() if entry.kind == "file")

    def content(self, path: str) -> bytes:
        """Of a file of the tree, links followed. Raises: NotFound if there is none."""
        found = self.resolve(path)
        if found is None or found.kind != "file":
            raise NotFound(f"the root has no file /{path}", hint="correct the recipe")
        return (self.root / found.path).read_bytes()

    def text(self, path: str) -> str:
        """Of a file that may be absent: its text, or an empty one."""
        found = self.resolve(path)
        return "" if found is None or found.kind != "file" else self.content(path).decode(errors="replace")

    def resolve(self, path: str) -> TreeEntry | None:
        """Where a path leads in this root, absolute links too; None if nowhere."""
        done: list[str] = []
        todo = [part for part in path.split("/") if part]
        followed = 0
        while todo:
            part = todo.pop(0)
            if part in (".", ".."):
                done = done[:-1] if part == ".." else done
                continue
            entry = self.entries.get("/".join([*done, part]))
            if entry is None:
                return None
            if entry.kind == "link":
                followed += 1
                if followed > _LINKS:
                    return None
                done = [] if entry.target.startswith("/") else done
                todo = [*(each for each in entry.target.split("/") if each), *todo]
                continue
            done.append(part)
        return self.entries.get("/".join(done))


def read_tree(root: Path) -> Tree:
    """Read all below `root`. Takes 2 s for 460 MB in 3,500 files."""
    entries: dict[str, TreeEntry] = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        with os.scandir(root / folder) as found:
            names = sorted(each.name for each in found)
        for name in names:
            path = f"{folder}/{name}" if folder else name
            entry = _read_entry(root, path)
            entries[path] = entry
            if entry.kind == "folder":
                waiting.append(path)
    return Tree(root, dict(sorted(entries.items())))


def _read_entry(root: Path, path: str) -> TreeEntry:
    file = root / path
    status = file.lstat()
    kind: Kind = _KINDS.get(stat.S_IFMT(status.st_mode), "other")
    mode = stat.S_IMODE(status.st_mode)
    if kind == "link":
        return TreeEntry(path=path, kind=kind, mode=mode, target=str(file.readlink()))
    if kind != "file":
        return TreeEntry(path=path, kind=kind, mode=mode)
    content = file.read_bytes()
    linkage, damaged = _linkage(content)
    return TreeEntry(
        path=path,
        kind=kind,
        mode=mode,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        head=content[:64],
        linkage=linkage,
        go=read_go_build(content) if linkage is not None else None,
        damaged=damaged,
        capability=_capability(file),
        secrets=find_secrets(content),
    )


def _linkage(content: bytes) -> tuple[Linkage | None, str]:
    if content[:4] != _ELF or int.from_bytes(content[16:18], "little") == _RELOCATABLE:
        return None, ""
    try:
        return read_linkage(content), ""
    except Refused as error:
        return None, str(error)


def _capability(file: Path) -> bytes:
    try:
        return os.getxattr(file, "security.capability")
    except OSError:
        return b""
