"""What a file of bbolt holds, read apart from what writes it; the file is trusted."""

from __future__ import annotations

import struct

from provisioner.image.containerd.bolt import Bucket

PAGE_BYTES = 4096
BRANCH = 0x01
IS_BUCKET = 0x01
PAGE_HEADER = struct.Struct("<QHHI")  # id, flags, count, overflow
ELEMENT = struct.Struct("<IIII")  # flags, position, key bytes, value bytes
BRANCH_ELEMENT = struct.Struct("<IIQ")  # position, key bytes, page
BUCKET = struct.Struct("<QQ")  # root page, sequence
META = struct.Struct("<IIIIQQQQQ")
"""Magic, version, page bytes, flags, root, sequence, free list, high page, transaction."""


def decode(data: bytes) -> Bucket:
    """The database's buckets, by the newer of its two meta pages."""
    metas = [META.unpack_from(data, number * PAGE_BYTES + PAGE_HEADER.size) for number in (0, 1)]
    newest = max(metas, key=lambda meta: int(meta[8]))
    return Bucket(read_page(data, newest[4], newest[2]), newest[5])


def read_page(data: bytes, page: int, page_bytes: int) -> dict[str, bytes | Bucket]:
    return read_elements(data, page * page_bytes, page_bytes)


def read_elements(data: bytes, start: int, page_bytes: int) -> dict[str, bytes | Bucket]:
    _, flags, count, _ = PAGE_HEADER.unpack_from(data, start)
    found: dict[str, bytes | Bucket] = {}
    for index in range(count):
        at = start + PAGE_HEADER.size + index * ELEMENT.size
        if flags & BRANCH:
            found.update(read_page(data, BRANCH_ELEMENT.unpack_from(data, at)[2], page_bytes))
            continue
        kind, position, name_bytes, value_bytes = ELEMENT.unpack_from(data, at)
        name_at = at + position
        value_at = name_at + name_bytes
        name = data[name_at:value_at].decode()
        if kind & IS_BUCKET:
            root_page, sequence = BUCKET.unpack_from(data, value_at)
            # Page 0: it follows inline.
            start_of_bucket = root_page * page_bytes if root_page else value_at + BUCKET.size
            found[name] = Bucket(read_elements(data, start_of_bucket, page_bytes), sequence)
        else:
            found[name] = data[value_at : value_at + value_bytes]
    return found
