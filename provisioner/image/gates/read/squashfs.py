"""What a squashfs holds, and how many of its bytes are each file's: read from its tables, nothing is mounted.

Source: Linux, fs/squashfs/squashfs_fs.h; Documentation/filesystems/squashfs.rst.
"""

from __future__ import annotations

import lzma
import struct
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import Refused

_SUPERBLOCK: Final = struct.Struct("<5I6H8Q")
_MAGIC: Final = 0x73717368
_METADATA: Final = 8192
_NO_FRAGMENT: Final = 0xFFFFFFFF
_UNPACKED_BLOCK: Final = 1 << 24
_MAX_TABLE: Final = 256 << 20
_ZLIB, _XZ, _ZSTD = 1, 4, 6
_FOLDER, _FILE, _LONG_FOLDER, _LONG_FILE = 1, 2, 8, 9
_REST: Final = {4: 8, 5: 8, 6: 4, 7: 4, 11: 12, 12: 12, 13: 8, 14: 8}
"""Bytes of devices, pipes and sockets behind what all have."""


@dataclass(frozen=True)
class PackedFile:
    """`packed_bytes`: what the file takes in the squashfs, its share of a block with others among it; 0 for a file
    whose blocks are those of another one. `mode` without the kind; `changed` in seconds since 1970."""

    path: str
    mode: int
    changed: int
    size_bytes: int
    packed_bytes: int


@dataclass(frozen=True)
class _Inode:
    kind: int
    mode: int
    changed: int
    size: int = 0
    start: int = 0
    blocks: tuple[int, ...] = ()
    fragment: int = _NO_FRAGMENT
    offset: int = 0


@dataclass(frozen=True)
class Squashfs:
    """`made`: when it says that it was made."""

    made: int
    files: tuple[PackedFile, ...]


def read_squashfs(file: Path) -> Squashfs:
    """All files, folders and links, sorted by path. Raises: Refused if it is none, or is damaged."""
    try:
        return _read(file)
    except (
        struct.error,
        IndexError,
        KeyError,
        ValueError,
        OverflowError,
        zlib.error,
        lzma.LZMAError,
        subprocess.CalledProcessError,
    ) as error:
        raise Refused(f"{file} is no squashfs, or a damaged one: {error}", hint="pack it again") from error


def _read(file: Path) -> Squashfs:
    with file.open("rb") as stream:
        numbers = _SUPERBLOCK.unpack(stream.read(_SUPERBLOCK.size))
        magic, _, made, block_size, fragment_count, compressor = numbers[:6]
        root, _, _, _, inodes_at, folders_at, fragments_at, _ = numbers[11:]
        if magic != _MAGIC or not 4096 <= block_size <= 1 << 20 or not inodes_at < folders_at <= fragments_at:
            raise ValueError("its first block is none of a squashfs")

        def table(start: int, end: int) -> _Table:
            if end - start > _MAX_TABLE:
                raise ValueError(f"a table of {end - start} bytes")
            stream.seek(start)
            return _Table(stream.read(end - start), compressor)

        inodes = dict(_inodes(table(inodes_at, folders_at).content, block_size))
        fragment_sizes: list[int] = []
        folders_end = fragments_at
        if fragment_count:
            stream.seek(fragments_at)
            many = (fragment_count + 511) // 512
            starts = struct.unpack(f"<{many}Q", stream.read(8 * many))
            folders_end = starts[0]
            entries = table(starts[0], fragments_at).content
            fragment_sizes = [
                struct.unpack_from("<QII", entries, 16 * index)[1] % _UNPACKED_BLOCK for index in range(fragment_count)
            ]
        folders = table(folders_at, folders_end)
        top = table(inodes_at, folders_at)
    root_number = struct.unpack_from("<I", top.content, top.position(root >> 16, root & 0xFFFF) + 12)[0]
    paths = list(_walk(root_number, inodes, folders))
    return Squashfs(made, tuple(_packed(paths, inodes, fragment_sizes, block_size)))


class _Table:
    """Blocks of metadata, unpacked: each holds 8 KiB, the last may hold less."""

    def __init__(self, packed: bytes, compressor: int) -> None:
        self._index: dict[int, int] = {}
        blocks: list[tuple[bool, bytes]] = []
        at = 0
        while at + 2 <= len(packed):
            (header,) = struct.unpack_from("<H", packed, at)
            size = header & 0x7FFF
            if size == 0 or at + 2 + size > len(packed):
                break  # what follows the last block of this table
            self._index[at] = len(blocks)
            blocks.append((not header & 0x8000, packed[at + 2 : at + 2 + size]))
            at += 2 + size
        self.content = _unpack(blocks, compressor)

    def position(self, block: int, offset: int) -> int:
        """Of a reference: where a block starts in the file, and an offset in what it holds."""
        return self._index[block] * _METADATA + offset


def _unpack(blocks: list[tuple[bool, bytes]], compressor: int) -> bytes:
    if compressor == _ZSTD:
        # One run of zstd for the whole table: it takes frames one behind the other.
        frames = b"".join(block if packed else _raw_frame(block) for packed, block in blocks)
        return subprocess.run(["zstd", "-dcq"], input=frames, stdout=subprocess.PIPE, check=True).stdout
    if compressor == _ZLIB:
        return b"".join(zlib.decompress(block) if packed else block for packed, block in blocks)
    if compressor == _XZ:
        return b"".join(lzma.decompress(block) if packed else block for packed, block in blocks)
    raise ValueError(f"compressor {compressor} is not known")


def _raw_frame(content: bytes) -> bytes:
    """A zstd frame of one block that is not compressed. Source: RFC 8878."""
    header = b"\xa0" + len(content).to_bytes(4, "little")  # one segment, its size in four bytes
    return b"\x28\xb5\x2f\xfd" + header + (1 | len(content) << 3).to_bytes(3, "little") + content


def _inodes(table: bytes, block_size: int) -> Iterator[tuple[int, _Inode]]:
    at = 0
    while at + 16 <= len(table):
        kind, mode, _, _, changed, number = struct.unpack_from("<4H2I", table, at)
        at += 16
        if kind == _FOLDER:
            start, _, size, offset, _ = struct.unpack_from("<IIHHI", table, at)
            inode, at = _Inode(kind, mode, changed, size, start, offset=offset), at + 16
        elif kind == _LONG_FOLDER:
            _, size, start, _, indexes, offset, _ = struct.unpack_from("<4IHHI", table, at)
            inode, at = _Inode(kind, mode, changed, size, start, offset=offset), at + 24
            for _ in range(indexes):
                at += 12 + struct.unpack_from("<3I", table, at)[2] + 1
        elif kind in (_FILE, _LONG_FILE):
            if kind == _FILE:
                start, fragment, offset, size = struct.unpack_from("<4I", table, at)
                at += 16
            else:
                start, size, _, _, fragment, offset, _ = struct.unpack_from("<3Q4I", table, at)
                at += 40
            many = size // block_size + (1 if fragment == _NO_FRAGMENT and size % block_size else 0)
            blocks = struct.unpack_from(f"<{many}I", table, at)
            inode, at = _Inode(kind, mode, changed, size, start, blocks, fragment, offset), at + 4 * many
        elif kind in (3, 10):
            size = struct.unpack_from("<II", table, at)[1]
            inode, at = _Inode(kind, mode, changed, size), at + 8 + size + (4 if kind == 10 else 0)
        else:
            inode, at = _Inode(kind, mode, changed), at + _REST[kind]
        yield number, inode


def _walk(root: int, inodes: dict[int, _Inode], folders: _Table) -> Iterator[tuple[str, int]]:
    waiting = [("", root)]
    seen = set()
    while waiting:
        path, number = waiting.pop()
        folder = inodes[number]
        if number in seen:
            raise ValueError(f"/{path} lies in itself")
        seen.add(number)
        if folder.size <= 3:  # an empty one has no entries; the size counts `.` and `..`
            continue
        at = folders.position(folder.start, folder.offset)
        end = at + folder.size - 3
        while at < end:
            count, _, first = struct.unpack_from("<3I", folders.content, at)
            at += 12
            for _ in range(count + 1):
                _, difference, _, length = struct.unpack_from("<HhHH", folders.content, at)
                name = folders.content[at + 8 : at + 9 + length].decode(errors="surrogateescape")
                at += 9 + length
                below = f"{path}/{name}" if path else name
                yield below, first + difference
                if inodes[first + difference].kind in (_FOLDER, _LONG_FOLDER):
                    waiting.append((below, first + difference))


def _packed(
    paths: list[tuple[str, int]], inodes: dict[int, _Inode], fragments: list[int], block_size: int
) -> Iterator[PackedFile]:
    tails: dict[int, dict[int, int]] = defaultdict(dict)
    for inode in inodes.values():
        if inode.fragment != _NO_FRAGMENT:
            tails[inode.fragment][inode.offset] = inode.size % block_size
    counted: set[tuple[int, int]] = set()
    for path, number in sorted(paths):
        inode = inodes[number]
        is_file = inode.kind in (_FILE, _LONG_FILE)
        packed = 0
        inside = sum(size % _UNPACKED_BLOCK for size in inode.blocks)  # none of a file that is one hole
        if inside and (-1, inode.start) not in counted:
            counted.add((-1, inode.start))
            packed += inside
        if inode.fragment != _NO_FRAGMENT and (inode.fragment, inode.offset) not in counted:
            counted.add((inode.fragment, inode.offset))
            whole = sum(tails[inode.fragment].values())
            packed += fragments[inode.fragment] * (inode.size % block_size) // max(whole, 1)
        yield PackedFile(path, inode.mode, inode.changed, inode.size if is_file else 0, packed)
