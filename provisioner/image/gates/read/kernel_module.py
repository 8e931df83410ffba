"""What a kernel module says of itself: its version, the kernel that it is for, firmware, and the symbols that it takes.

Source: Linux, include/linux/module.h (.modinfo, __versions), include/linux/export-internal.h (__ksymtab_strings).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.image.tools.elf import read_sections

_HINT: Final = "build the module again; if it comes from a package, build the base again with --force"
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_VERSION: Final = struct.Struct("<Q56s")
_GLOBAL: Final = 1
_UNDEFINED: Final = 0


@dataclass(frozen=True)
class KernelModule:
    """`info`: the strings of .modinfo by key. `imports`, `exports`: symbols, of imports with the CRC expected."""

    info: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    imports: Mapping[str, int | None] = field(default_factory=dict)
    exports: frozenset[str] = frozenset()

    @property
    def release(self) -> str:
        """The kernel that it is for: the first word of `vermagic`."""
        return " ".join(self.info.get("vermagic", ())).partition(" ")[0]

    @property
    def version(self) -> str:
        """Its own version, empty if it says none."""
        return next(iter(self.info.get("version", ())), "")

    @property
    def firmware(self) -> tuple[str, ...]:
        return self.info.get("firmware", ())


def read_module(content: bytes) -> KernelModule:
    """Raises: Refused if it is no 64-bit little-endian ELF file, or one that contradicts itself."""
    if content[:6] != b"\x7fELF\x02\x01":
        raise Refused("not a kernel module: not a 64-bit little-endian ELF file", hint=_HINT)
    try:
        sections = {name: section.content for name, section in read_sections(content).items()}
        imports: dict[str, int | None] = dict.fromkeys(_undefined(sections))
        imports.update(_versions(sections.get("__versions", b"")))
        exports = frozenset(_strings(sections.get("__ksymtab_strings", b"")))
        return KernelModule(_info(sections.get(".modinfo", b"")), imports, exports)
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise Refused(f"an ELF file that names what it does not hold: {error}", hint=_HINT) from error


def _info(section: bytes) -> dict[str, tuple[str, ...]]:
    info: dict[str, tuple[str, ...]] = {}
    for text in _strings(section):
        key, equals, value = text.partition("=")
        if equals:
            info[key] = (*info.get(key, ()), value)
    return info


def _undefined(sections: Mapping[str, bytes]) -> list[str]:
    symbols, strings = sections.get(".symtab", b""), sections.get(".strtab", b"")
    found = []
    for at in range(0, len(symbols) - _SYMBOL.size + 1, _SYMBOL.size):
        name, info, _, section, _, _ = _SYMBOL.unpack_from(symbols, at)
        if section == _UNDEFINED and info >> 4 == _GLOBAL and name:
            found.append(strings[name : strings.index(b"\0", name)].decode(errors="replace"))
    return found


def _versions(section: bytes) -> dict[str, int]:
    found = {}
    for at in range(0, len(section) - _VERSION.size + 1, _VERSION.size):
        checksum, name = _VERSION.unpack_from(section, at)
        found[name.partition(b"\0")[0].decode(errors="replace")] = checksum & 0xFFFFFFFF
    return found


def _strings(section: bytes) -> list[str]:
    return [text.decode(errors="replace") for text in section.split(b"\0") if text]
