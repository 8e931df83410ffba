"""What a build must know of a program: for which machine it is, its loader, and the libraries it is linked with.

Read from the file itself, so that a program of another architecture can be looked at too, and none has to run.
Source: System V ABI, chapters 4 and 5 (program header, dynamic section).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.servers.server import Architecture

_MACHINES: Final[dict[int, Architecture]] = {62: "x86_64", 183: "arm64"}
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP = 1, 2, 3
_DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 1, 5, 15, 29
_ENTRY_BYTES: Final = 56
_MAGIC: Final = b"\x7fELF\x02\x01"
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_MAX_SECTIONS: Final = 65279
_NOBITS: Final = 8


@dataclass(frozen=True)
class Linkage:
    """`interpreter` is the absolute path of the loader, None for a library; `needed` are sonames.

    `search` are the folders that the file itself names (DT_RUNPATH, without one DT_RPATH), `$ORIGIN` as it stands.
    """

    interpreter: str | None
    needed: tuple[str, ...]
    search: tuple[str, ...] = ()


def read_architecture(head: bytes) -> Architecture | None:
    """Of the first 20 bytes of a file: what it was made for; None of what is no program, or for something else."""
    return _MACHINES.get(int.from_bytes(head[18:20], "little")) if head[:6] == _MAGIC else None


def read_linkage(content: bytes) -> Linkage:
    """Raises: Refused if `content` is not a 64-bit little-endian ELF file, or one that contradicts itself."""
    if content[:6] != _MAGIC:
        raise Refused("not a 64-bit little-endian ELF file", hint="check the package that it comes from")
    try:
        return _read_linkage(content)
    except (struct.error, ValueError, StopIteration, OverflowError) as error:
        raise Refused(
            f"an ELF file that names what it does not hold: {error}", hint="check the package that it comes from"
        ) from error


def _read_linkage(content: bytes) -> Linkage:
    offset, size, count = *struct.unpack_from("<Q", content, 32), *struct.unpack_from("<HH", content, 54)
    if count and size < _ENTRY_BYTES:
        raise ValueError(f"program headers of {size} bytes")
    segments = [struct.unpack_from("<IIQQQQQQ", content, offset + index * size) for index in range(count)]
    interpreter, dynamic = None, b""
    for type_, _, at, _, _, length, _, _ in segments:
        if type_ == _PT_INTERP:
            interpreter = content[at : at + length].rstrip(b"\0").decode()
        elif type_ == _PT_DYNAMIC:
            dynamic = content[at : at + length]
    entries = [struct.unpack_from("<QQ", dynamic, at) for at in range(0, len(dynamic) - 15, 16)]
    addresses = [value for tag, value in entries if tag == _DT_STRTAB]
    if not addresses:
        return Linkage(interpreter, ())
    strings = next(
        addresses[0] - virtual + at
        for type_, _, at, virtual, _, length, _, _ in segments
        if type_ == _PT_LOAD and virtual <= addresses[0] < virtual + length
    )

    def named(wanted: int) -> tuple[str, ...]:
        starts = [strings + value for tag, value in entries if tag == wanted]
        return tuple(content[start : content.index(b"\0", start)].decode() for start in starts)

    search = named(_DT_RUNPATH) or named(_DT_RPATH)
    folders = tuple(folder for value in search for folder in value.split(":") if folder)
    return Linkage(interpreter, named(_DT_NEEDED), folders)


@dataclass(frozen=True)
class ElfSection:
    """`content`: empty where the file holds nothing of it."""

    address: int
    content: bytes


def read_sections(content: bytes) -> dict[str, ElfSection]:
    """By name. Raises: ValueError, struct.error, IndexError or OverflowError if `content` is not a 64-bit little-endian
    ELF file, or one that contradicts itself."""
    if content[:6] != _MAGIC:
        raise ValueError("not a 64-bit little-endian ELF file")
    offset = int.from_bytes(content[40:48], "little")
    size, count, names_at = struct.unpack_from("<HHH", content, 58)
    if count > _MAX_SECTIONS or (count and size != _SECTION.size):
        raise ValueError(f"{count} sections of {size} bytes")
    headers = [_SECTION.unpack_from(content, offset + index * size) for index in range(count)]
    bodies = [content[at : at + length] if kind != _NOBITS else b"" for _, kind, _, _, at, length, *_ in headers]
    names = bodies[names_at]
    found = {}
    for (name, _, _, address, *_), body in zip(headers, bodies, strict=True):
        found[names[name : names.index(b"\0", name)].decode(errors="replace")] = ElfSection(address, body)
    return found
