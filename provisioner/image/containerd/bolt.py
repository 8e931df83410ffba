"""Files of bbolt, the database of containerd, written without it: the same bytes from the same content.

A database is a tree of buckets; a bucket has values and further buckets by name. Written here: two meta pages, an empty
free list, and every bucket as one leaf page (or more, where it has long values): right for a handful of entries, which
is what an image that holds one container image has.

Source: go.etcd.io/bbolt, internal/common (page.go, meta.go, bucket.go).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass
class Bucket:
    """Values and buckets by name; `sequence` is the last number that was given out in the bucket."""

    entries: Mapping[str, bytes | Bucket] = field(default_factory=dict)
    sequence: int = 0


_PAGE_BYTES: Final = 4096
_MAGIC: Final = 0xED0CDAED
_VERSION: Final = 2
_LEAF, _META, _FREE_LIST = 0x02, 0x04, 0x10
_IS_BUCKET: Final = 0x01
_PAGE_HEADER: Final = struct.Struct("<QHHI")  # id, flags, count, overflow
_ELEMENT: Final = struct.Struct("<IIII")  # flags, position, key bytes, value bytes
_BUCKET: Final = struct.Struct("<QQ")  # root page, sequence
_META_FIELDS: Final = struct.Struct(
    "<IIIIQQQQQ"
)  # magic, version, page bytes, flags, root, sequence, free list, high page, transaction
_FIRST_DATA_PAGE: Final = 3


def encode(root: Bucket) -> bytes:
    """The database file."""
    writer = _Writer()
    root_page = writer.add(root)
    high_page = _FIRST_DATA_PAGE + writer.page_count
    metas = [_meta(number, root_page, high_page) for number in (0, 1)]
    free_list = _page(2, _FREE_LIST, 0, b"")
    return b"".join([*metas, free_list, *writer.pages])


class _Writer:
    def __init__(self) -> None:
        self.pages: list[bytes] = []
        self.page_count = 0

    def add(self, bucket: Bucket) -> int:
        """Write the buckets within, then the bucket; returns its page."""
        elements = []
        for name, value in sorted(bucket.entries.items(), key=lambda entry: entry[0].encode()):
            if isinstance(value, Bucket):
                elements.append((_IS_BUCKET, name.encode(), _BUCKET.pack(self.add(value), value.sequence)))
            else:
                elements.append((0, name.encode(), value))
        body = _leaf_body(elements)
        number = _FIRST_DATA_PAGE + self.page_count
        page = _page(number, _LEAF, len(elements), body)
        self.pages.append(page)
        self.page_count += len(page) // _PAGE_BYTES
        return number


def _leaf_body(elements: list[tuple[int, bytes, bytes]]) -> bytes:
    table, content = b"", b""
    for index, (flags, name, value) in enumerate(elements):
        # Positions count from the element's own place in the table.
        position = _ELEMENT.size * (len(elements) - index) + len(content)
        table += _ELEMENT.pack(flags, position, len(name), len(value))
        content += name + value
    return table + content


def _page(number: int, flags: int, count: int, body: bytes) -> bytes:
    size = _PAGE_HEADER.size + len(body)
    pages = -(-size // _PAGE_BYTES)
    return (_PAGE_HEADER.pack(number, flags, count, pages - 1) + body).ljust(pages * _PAGE_BYTES, b"\0")


def _meta(number: int, root_page: int, high_page: int) -> bytes:
    fields = _META_FIELDS.pack(_MAGIC, _VERSION, _PAGE_BYTES, 0, root_page, 0, 2, high_page, number)
    return _page(number, _META, 0, fields + struct.pack("<Q", _fnv1a(fields)))


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) % (1 << 64)
    return value
