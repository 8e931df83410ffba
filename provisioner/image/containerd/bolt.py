"""Files of bbolt, the database of containerd, written and read without it: the same bytes from the same content.

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
_LEAF, _META, _FREE_LIST, _BRANCH = 0x02, 0x04, 0x10, 0x01
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


def decode(data: bytes) -> Bucket:
    """What a database holds. For tests; it trusts the file."""
    metas = [_META_FIELDS.unpack_from(data, number * _PAGE_BYTES + _PAGE_HEADER.size) for number in (0, 1)]
    newest = max(metas, key=lambda meta: int(meta[8]))
    return Bucket(_read_page(data, newest[4], newest[2]), newest[5])


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


def _read_page(data: bytes, page: int, page_bytes: int) -> dict[str, bytes | Bucket]:
    return _read_elements(data, page * page_bytes, page_bytes)


def _read_elements(data: bytes, start: int, page_bytes: int) -> dict[str, bytes | Bucket]:
    _, flags, count, _ = _PAGE_HEADER.unpack_from(data, start)
    found: dict[str, bytes | Bucket] = {}
    for index in range(count):
        at = start + _PAGE_HEADER.size + index * _ELEMENT.size
        if flags & _BRANCH:
            found.update(_read_page(data, struct.unpack_from("<IIQ", data, at)[2], page_bytes))
            continue
        kind, position, name_bytes, value_bytes = _ELEMENT.unpack_from(data, at)
        name_at = at + position
        value_at = name_at + name_bytes
        name = data[name_at:value_at].decode()
        if kind & _IS_BUCKET:
            root_page, sequence = _BUCKET.unpack_from(data, value_at)
            start_of_bucket = (
                root_page * page_bytes if root_page else value_at + _BUCKET.size
            )  # page 0: it follows inline
            found[name] = Bucket(_read_elements(data, start_of_bucket, page_bytes), sequence)
        else:
            found[name] = data[value_at : value_at + value_bytes]
    return found
