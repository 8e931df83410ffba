"""TPM structures are big-endian numbers, and buffers behind a 16-bit size: a bounded reader, and the writers."""

from __future__ import annotations

import struct
from typing import Any, Literal

from provisioner.api.machinery.errors import Refused


class MalformedTpmData(Refused):
    """The bytes are not the structure that they should be. The one error of every parser in this package."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="send it as the TPM, or its firmware, wrote it")


class StructureReader:
    """Reads a structure from its beginning; every method raises MalformedTpmData where it ends too soon.

    what: the structure's name, for messages. order: TPM structures are big-endian, event logs little-endian.
    """

    def __init__(self, data: bytes, what: str, *, order: Literal["big", "little"] = "big") -> None:
        self._data, self._at, self._what = data, 0, what
        self._mark = ">" if order == "big" else "<"

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        begin = self._at
        end = begin + size
        if end > len(self._data):
            raise MalformedTpmData(f"{self._what} ends after {len(self._data)} bytes, {size - self.left} too early")
        self._at = end
        return self._data[begin:end]

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        """The next fields, all at once."""
        return layout.unpack(self.take(layout.size))

    def peek(self, size: int) -> bytes:
        """The next `size` bytes, which are read again; fewer where there are fewer."""
        return self._data[self._at : self._at + size]

    def uint8(self) -> int:
        return self.take(1)[0]

    def uint16(self) -> int:
        return int(struct.unpack(f"{self._mark}H", self.take(2))[0])

    def uint32(self) -> int:
        return int(struct.unpack(f"{self._mark}I", self.take(4))[0])

    def uint64(self) -> int:
        return int(struct.unpack(f"{self._mark}Q", self.take(8))[0])

    def sized(self, most: int) -> bytes:
        """A buffer behind its 16-bit size (TPM2B), of at most `most` bytes."""
        size = self.uint16()
        if size > most:
            raise MalformedTpmData(f"a buffer of {self._what} has {size} bytes, at most {most} are expected")
        return self.take(size)

    def end(self) -> None:
        """Raises MalformedTpmData if anything is left."""
        if self.left:
            raise MalformedTpmData(f"{self._what} has {self.left} bytes behind its end")


def uint16(value: int) -> bytes:
    """Two bytes, big-endian."""
    return struct.pack(">H", value)


def uint32(value: int) -> bytes:
    """Four bytes, big-endian."""
    return struct.pack(">I", value)


def sized(data: bytes) -> bytes:
    """A TPM2B: the size in 16 bits, then the bytes."""
    return uint16(len(data)) + data
