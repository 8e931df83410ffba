"""A cpio archive (newc) of a tree that the kernel unpacks as initramfs; the same bytes from the same content.

Source: Linux, Documentation/driver-api/early-userspace/buffer-format.rst.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable
from dataclasses import dataclass

_TRAILER = "TRAILER!!!"


@dataclass(frozen=True)
class CpioEntry:
    """One file, folder, link (`content` is its target) or character device. Everything belongs to root, of no time."""

    name: str
    mode: int
    content: bytes = b""
    device: tuple[int, int] = (0, 0)


def folder(name: str) -> CpioEntry:
    return CpioEntry(name, stat.S_IFDIR | 0o755)


def file(name: str, content: bytes, mode: int = 0o644) -> CpioEntry:
    return CpioEntry(name, stat.S_IFREG | mode, content)


def link(name: str, target: str) -> CpioEntry:
    return CpioEntry(name, stat.S_IFLNK | 0o777, target.encode())


def character_device(name: str, major: int, minor: int) -> CpioEntry:
    return CpioEntry(name, stat.S_IFCHR | 0o600, b"", (major, minor))


def archive(entries: Iterable[CpioEntry]) -> bytes:
    """The archive: entries sorted by name, with the folders that they lie in."""
    by_name = {entry.name: entry for entry in entries}
    for name in list(by_name):
        while "/" in name:
            name = name.rsplit("/", 1)[0]
            by_name.setdefault(name, folder(name))
    parts = [_record(number, by_name[name]) for number, name in enumerate(sorted(by_name), start=1)]
    parts.append(_record(0, CpioEntry(_TRAILER, 0)))
    return b"".join(parts)


def _record(inode: int, entry: CpioEntry) -> bytes:
    name = entry.name.encode() + b"\0"
    links = 2 if stat.S_ISDIR(entry.mode) else 1
    fields = (inode, entry.mode, 0, 0, links, 0, len(entry.content), 0, 0, *entry.device, len(name), 0)
    header = b"070701" + b"".join(b"%08X" % value for value in fields)
    return _padded(header + name) + _padded(entry.content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
