"""What a program that Go built says it is made of: the toolchain, its main module, and all modules that are linked in.

Source: Go, debug/buildinfo (the inline format, since Go 1.18) and runtime/debug.ParseBuildInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

MAGIC: Final = b"\xff Go buildinf:"
_NO_VERSION: Final = "(devel)"
_ALIGNED: Final = 16
_HEADER: Final = 32
_INLINE: Final = 0b10
_SENTINEL: Final = 16
_MAX_BYTES: Final = 1 << 20
_MAX_MODULES: Final = 8192
_ATTEMPTS: Final = 16


@dataclass(frozen=True)
class GoModule:
    """`sum` is the `h1:` digest that Go's checksum database has; empty if none was recorded."""

    path: str
    version: str
    sum: str = ""


@dataclass(frozen=True)
class GoBuild:
    """`package` is the import path of the program; `main` None if it was built outside of any module."""

    toolchain: str
    package: str
    main: GoModule | None
    modules: tuple[GoModule, ...]


def versioned(build: GoBuild, known: Mapping[str, str]) -> GoBuild:
    """With the version of its main module out of `known` (by path), if Go knew none: what is built in a module's own
    folder says `(devel)`."""
    if build.main is None or build.main.version != _NO_VERSION or build.main.path not in known:
        return build
    return replace(build, main=replace(build.main, version=known[build.main.path]))


def read_go_build(content: bytes) -> GoBuild | None:
    """None of a program that Go did not build, or whose record is damaged or older than Go 1.18."""
    at = content.find(MAGIC)
    for _ in range(_ATTEMPTS):  # the linker aligns it; the bytes may also be text of a program that looks for them
        if at < 0:
            return None
        if at % _ALIGNED == 0 and (found := _read(content, at)) is not None:
            return found
        at = content.find(MAGIC, at + 1)
    return None


def _read(content: bytes, at: int) -> GoBuild | None:
    if len(content) < at + _HEADER or not content[at + 15] & _INLINE:
        return None
    toolchain, behind = _text(content, at + _HEADER)
    if toolchain is None or not toolchain.startswith(b"go"):
        return None
    listed, _ = _text(content, behind)
    if listed is None:
        return None
    lines = listed[_SENTINEL:-_SENTINEL].decode(errors="replace").splitlines()
    return _parse(toolchain.decode(errors="replace").split(" ")[0], lines)


def _parse(toolchain: str, lines: list[str]) -> GoBuild:
    package, main, modules = "", None, []
    for line in lines[: _MAX_MODULES + 256]:
        word, *values = line.split("\t")
        if word == "path" and values:
            package = values[0]
        elif word == "mod" and values:
            main = _module(values)
        elif word == "dep" and values:
            modules.append(_module(values))
        elif word == "=>" and values and modules:  # what stands in its place is what is linked in
            modules[-1] = _module(values)
    return GoBuild(toolchain, package, main, tuple(modules[:_MAX_MODULES]))


def _module(values: list[str]) -> GoModule:
    path, version, checksum = (*values, "", "")[:3]
    return GoModule(path, version, checksum)


def _text(content: bytes, at: int) -> tuple[bytes | None, int]:
    """A length as varint, then so many bytes; None if they are not there or too many."""
    length = shift = 0
    for index in range(at, min(at + 5, len(content))):
        length |= (content[index] & 0x7F) << shift
        shift += 7
        if not content[index] & 0x80:
            end = index + 1 + length
            if length > _MAX_BYTES or end > len(content):
                return None, at
            return content[index + 1 : end], end
    return None, at
