"""Every program's loader and libraries are in the root, for its architecture: what a removal must not break.

As ld.so looks: DT_RUNPATH (or DT_RPATH), the folders of /etc/ld.so.conf, the default ones. Source: ld.so(8).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from provisioner.api.servers.server import Architecture
from provisioner.image.gates.allowed import matching, reason_for
from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.read.tree import Tree
from provisioner.image.tools.elf import Linkage, read_architecture

GATE: Final = "libraries"
_FIRMWARE: Final = ("usr/lib/firmware/", "usr/lib/modules/")
"""ELF files that no processor of this machine's runs, and modules, which `modules` judges."""
_TRIPLETS: Final[Mapping[Architecture, str]] = {"x86_64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_NESTING: Final = 8


def check_libraries(tree: Tree, architecture: Architecture, allowed: Mapping[str, str]) -> Iterator[GateFailure]:
    """`allowed`: `<soname>`, or `<path>: <soname>`, → reason."""
    programs: dict[str, Linkage] = {}
    for entry in tree.files():
        if entry.path.startswith(_FIRMWARE) or not (entry.linkage or entry.damaged):
            continue
        if entry.linkage is None:
            yield GateFailure(
                GATE,
                f"/{entry.path}",
                entry.damaged,
                f"a program or library of {architecture}",
                "add it to root.remove",
            )
        elif (made_for := read_architecture(entry.head)) != architecture:
            yield GateFailure(
                GATE,
                f"/{entry.path}",
                f"made for {made_for or 'an unknown machine'}",
                f"made for {architecture}",
                "take the package of the image's architecture",
            )
        else:
            programs[entry.path] = entry.linkage
    linked = _Linked(tree, programs, architecture)
    for path, linkage in programs.items():
        for name in (*linkage.needed, *([linkage.interpreter] if linkage.interpreter else [])):
            if linked.found(path, name) or linked.is_loaded_before(path, name):
                continue
            if reason_for(name, allowed) is None and reason_for(f"{path}: {name}", allowed) is None:
                yield GateFailure(
                    GATE,
                    f"/{path}",
                    f"needs {name}, which is not in the root",
                    "each needed library and loader, for the same architecture",
                    "keep that file (root.remove), remove this one, or list it in gates.allow-missing-libraries",
                )


class _Linked:
    """Where each program and library finds what it needs."""

    def __init__(self, tree: Tree, programs: Mapping[str, Linkage], architecture: Architecture) -> None:
        self._tree, self._programs, self._architecture = tree, programs, architecture
        self._folders = [*configured(tree, "etc/ld.so.conf"), *_default(architecture)]

    def found(self, path: str, name: str) -> str | None:
        """The file that `path` gets when it asks for `name`."""
        own = [_expanded(folder, path, self._architecture) for folder in self._programs[path].search]
        for candidate in [name] if "/" in name else [f"{folder}/{name}" for folder in [*own, *self._folders]]:
            entry = self._tree.resolve(candidate)
            if entry is not None and entry.kind == "file" and read_architecture(entry.head) == self._architecture:
                return entry.path
        return None

    def is_loaded_before(self, library: str, name: str) -> bool:
        """Whether each program that loads `library` has loaded `name` by itself: ld.so takes that, wherever it lies."""
        loaders = [files for program in self._programs if library in (files := self._closure(program)) - {program}]
        return bool(loaders) and all(any(PurePosixPath(file).name == name for file in files) for files in loaders)

    def _closure(self, program: str) -> set[str]:
        done: set[str] = set()
        waiting = [program]
        while waiting:
            path = waiting.pop()
            if path not in done and path in self._programs:
                done.add(path)
                waiting += [file for name in self._programs[path].needed if (file := self.found(path, name))]
        return done


def _expanded(folder: str, path: str, architecture: Architecture) -> str:
    origin = f"/{PurePosixPath(path).parent}"
    for token, value in (
        ("ORIGIN", origin),
        ("LIB", f"lib/{_TRIPLETS[architecture]}"),
        ("PLATFORM", "aarch64" if architecture == "arm64" else "x86_64"),
    ):
        folder = folder.replace(f"${{{token}}}", value).replace(f"${token}", value)
    return folder


def _default(architecture: Architecture) -> list[str]:
    triplet = _TRIPLETS[architecture]
    return [f"/{folder}" for folder in (f"lib/{triplet}", f"usr/lib/{triplet}", "lib64", "usr/lib64", "lib", "usr/lib")]


def configured(tree: Tree, file: str, depth: int = 0) -> list[str]:
    """The folders that a file of ld.so.conf's format names, those of the files that it includes among them."""
    folders: list[str] = []
    for line in tree.text(file).splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["include"]:
            for pattern in words[1:]:
                absolute = pattern if pattern.startswith("/") else f"/{PurePosixPath(file).parent}/{pattern}"
                found = matching(tree.entries, absolute.lstrip("/"))
                if depth < _NESTING:
                    folders += [folder for path in found for folder in configured(tree, path, depth + 1)]
        elif words:
            folders += [word for word in words[0].split(":") if word]
    return folders
