"""EFI programs as files: their sections, more sections for one, and the digest that firmware takes of one. Pure.

What is read here comes from a distribution's package or an administrator's disk; it is bounded and checked all the
same, as what is written here is signed afterwards.
Source: Microsoft, PE Format; Microsoft, Windows Authenticode Portable Executable Signature Format.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import Refused

MOST_BYTES: Final = 1 << 30
_PE32_PLUS: Final = 0x20B
_OFFSET_OF_PE: Final = 0x3C
_HEADER_BYTES: Final = 24
"""PE signature and COFF header, in front of the optional header."""
_CHECKSUM_AT: Final = 64
_CERTIFICATES_AT: Final = 144
"""Data directory 4 of a PE32+ optional header: where the signatures lie, and how many bytes they have."""
_SECTION: Final = struct.Struct("<8sIIIIIIHHI")
_MOST_SECTIONS: Final = 32
_PAGE: Final = 4096
_MOST_ALIGNMENT: Final = 1 << 22
_MOST_FILE_ALIGNMENT: Final = 1 << 16
_INITIALIZED_AND_READABLE: Final = 0x4000_0040
MACHINES: Final = {0x8664: "x86_64", 0xAA64: "arm64"}
"""Processor architectures as the API calls them, by the number that the header has."""


@dataclass(frozen=True)
class Layout:
    """Where things lie in a file, in bytes from its begin. `alignment`: of addresses; `file_alignment`: in the file."""

    optional: int
    architecture: str
    table: int
    sections: tuple[tuple[str, int, int, int, int], ...]
    """Name, address, size in memory, place in the file, size in the file."""
    alignment: int
    file_alignment: int
    headers: int
    certificates: tuple[int, int]

    @property
    def end(self) -> int:
        """Address behind the last section."""
        return max((address + size for _, address, size, _, _ in self.sections), default=self.headers)


def read_layout(program: bytes) -> Layout:
    """Raises: Refused if it is no EFI program of 64 bits, or one that is cut off."""
    if not 64 <= len(program) <= MOST_BYTES or program[:2] != b"MZ":
        raise _not_one("it does not begin with MZ" if len(program) >= 64 else "it is too short")
    try:
        return _read_layout(program)
    except struct.error:
        raise _not_one("its headers are cut off") from None


def _read_layout(program: bytes) -> Layout:
    (at,) = struct.unpack_from("<I", program, _OFFSET_OF_PE)
    if program[at : at + 4] != b"PE\0\0":
        raise _not_one("it has no PE header")
    machine, count, _, _, _, optional_size, _ = struct.unpack_from("<HHIIIHH", program, at + 4)
    optional = at + _HEADER_BYTES
    (magic,) = struct.unpack_from("<H", program, optional)
    if magic != _PE32_PLUS or machine not in MACHINES or count > _MOST_SECTIONS:
        raise _not_one(f"its header says machine {machine:#x}, format {magic:#x} and {count} sections")
    alignment, file_alignment = struct.unpack_from("<II", program, optional + 32)
    (headers,) = struct.unpack_from("<I", program, optional + 60)
    (directories,) = struct.unpack_from("<I", program, optional + 108)
    table = optional + optional_size
    aligned = _is_power(alignment, _MOST_ALIGNMENT) and _is_power(file_alignment, _MOST_FILE_ALIGNMENT)
    if directories < 5 or not aligned or not table <= headers <= len(program):
        raise _not_one("its header contradicts itself")
    sections = []
    for number in range(count):
        name, size, address, raw_size, raw, *_ = _SECTION.unpack_from(program, table + number * _SECTION.size)
        if raw + raw_size > len(program) or address + size > MOST_BYTES:
            raise _not_one("a section is cut off")
        sections.append((name.rstrip(b"\0").decode("latin-1"), address, size, raw, raw_size))
    certificates = struct.unpack_from("<II", program, optional + _CERTIFICATES_AT)
    if certificates[1] and sum(certificates) > len(program):
        raise _not_one("its signatures are cut off")
    return Layout(
        optional, MACHINES[machine], table, tuple(sections), alignment, file_alignment, headers, certificates
    )  # fmt: skip


def add_sections(program: bytes, contents: Sequence[tuple[str, bytes]]) -> bytes:
    """The program with more sections, each readable and loaded behind the others.

    Raises: Refused if it is signed, has such a section, or has no room for their headers; as read_layout.
    """
    layout = read_layout(program)
    known = {name for name, *_ in layout.sections}
    twice = [name for name, _ in contents if name in known]
    if layout.certificates[1] or twice:
        what = f"it has a section {twice[0]} already" if twice else "it is signed"
        raise Refused(f"no section can be added to the EFI program: {what}", hint="name the stub as its package has it")
    table_end = layout.table + len(layout.sections) * _SECTION.size
    if table_end + len(contents) * _SECTION.size > layout.headers:
        raise Refused(
            f"the EFI program has no room for the headers of {len(contents)} sections",
            hint="use systemd's stub, of systemd-boot-efi 252 or newer",
        )
    # Behind the sections a linker leaves its symbols. Firmware takes the digest as if sections followed one another.
    used = max(layout.headers, *(raw + raw_size for *_, raw, raw_size in layout.sections), 0)
    result, address = bytearray(program[:used]), layout.end
    struct.pack_into("<II", result, layout.optional - _HEADER_BYTES + 12, 0, 0)
    for number, (name, content) in enumerate(contents):
        address = _aligned(address, max(layout.alignment, _PAGE))
        result += b"\0" * (_aligned(len(result), layout.file_alignment) - len(result))
        header = _SECTION.pack(
            name.encode().ljust(8, b"\0"),
            len(content),
            address,
            _aligned(len(content), layout.file_alignment),
            len(result),
            *(0, 0, 0, 0, _INITIALIZED_AND_READABLE),
        )
        at = table_end + number * _SECTION.size
        result[at : at + _SECTION.size] = header
        result += content + b"\0" * (-len(content) % layout.file_alignment)
        address += len(content)
    if len(result) > MOST_BYTES:
        raise Refused(f"the EFI program has {len(result)} bytes, more than {MOST_BYTES}", hint="leave sections out")
    count_at = layout.optional - _HEADER_BYTES + 6
    struct.pack_into("<H", result, count_at, len(layout.sections) + len(contents))
    struct.pack_into("<I", result, layout.optional + 56, _aligned(address, layout.alignment))
    struct.pack_into("<I", result, layout.optional + _CHECKSUM_AT, 0)
    return bytes(result)


def _aligned(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


def _is_power(value: int, most: int) -> bool:
    return 0 < value <= most and value & (value - 1) == 0


def _not_one(why: str) -> Refused:
    return Refused(f"the file is no EFI program of 64 bits: {why}", hint="name systemd's stub or a UKI: *.efi")
