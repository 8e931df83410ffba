"""What a kernel module says of itself, in its section `.modinfo`.

Source: System V ABI, chapter 4; Linux, include/linux/module.h.
"""

from __future__ import annotations

import struct

from provisioner.api.machinery.errors import Refused


def read_modinfo(module: bytes) -> dict[str, list[str]]:
    """All `key=value`, by key. Raises: Refused if it is no 64-bit little-endian ELF file with that section."""
    try:
        return _fields(_section(module, b".modinfo"))
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise Refused("not a kernel module: it has no section .modinfo", hint="build it again") from error


def _section(content: bytes, wanted: bytes) -> bytes:
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF")
    (offset,) = struct.unpack_from("<Q", content, 40)
    size, count, names = struct.unpack_from("<HHH", content, 58)
    headers = [struct.unpack_from("<IIQQQQ", content, offset + index * size) for index in range(count)]
    strings = headers[names][4]
    for name, _, _, _, at, length in headers:
        start = strings + name
        if content[start : start + len(wanted) + 1] == wanted + b"\0":
            return content[at : at + length]
    raise ValueError("no such section")


def _fields(section: bytes) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for entry in section.split(b"\0"):
        key, equals, value = entry.decode(errors="replace").partition("=")
        if equals:
            found.setdefault(key, []).append(value)
    return found
