"""What firmware measures of a program that it starts: the Authenticode digest of a PE file. Pure.

It leaves out what a signature changes: the checksum, the entry of the certificate table and that table itself, so that
a kernel has one digest before and after it is signed for Secure Boot.

Source: Microsoft, "Windows Authenticode Portable Executable Signature Format", Calculating the PE Image Hash;
TCG PC Client Platform Firmware Profile, 10.2.1 (EV_EFI_BOOT_SERVICES_APPLICATION).
"""

from __future__ import annotations

import hashlib
import struct
from typing import Final

_OPTIONAL_HEADER: Final = 24
"""Bytes from the PE signature to the optional header."""
_CHECKSUM: Final = 64
_DIRECTORIES: Final = {0x10B: 96, 0x20B: 112}
"""Where the data directories begin in the optional header of PE32 and of PE32+."""
_CERTIFICATES: Final = 4
"""Which of the data directories is the certificate table."""
_SECTION_BYTES: Final = 40
_MAX_SECTIONS: Final = 96


def authenticode_sha256(program: bytes) -> str | None:
    """The digest, as `sha256:…`; None if it is no PE file whose parts lie where it says."""
    try:
        return _digest(program)
    except (struct.error, _Unreadable):
        return None


class _Unreadable(Exception):
    """It is no PE file, or none that firmware would start."""


def _digest(program: bytes) -> str:
    if program[:2] != b"MZ":
        raise _Unreadable
    (pe,) = struct.unpack_from("<I", program, 0x3C)
    if program[pe : pe + 4] != b"PE\0\0":
        raise _Unreadable
    sections, optional_size = struct.unpack_from("<H", program, pe + 6)[0], struct.unpack_from("<H", program, pe + 20)[0]
    optional = pe + _OPTIONAL_HEADER
    (magic,) = struct.unpack_from("<H", program, optional)
    if magic not in _DIRECTORIES or sections > _MAX_SECTIONS:
        raise _Unreadable
    (headers_end,) = struct.unpack_from("<I", program, optional + 60)
    (directories,) = struct.unpack_from("<I", program, optional + _DIRECTORIES[magic] - 4)
    entry = optional + _DIRECTORIES[magic] + _CERTIFICATES * 8
    table = optional + optional_size
    if not table + sections * _SECTION_BYTES <= headers_end <= len(program):
        raise _Unreadable
    digest = hashlib.sha256(program[: optional + _CHECKSUM])
    certificates_size = 0
    if directories > _CERTIFICATES:
        digest.update(program[optional + _CHECKSUM + 4 : entry])
        digest.update(program[entry + 8 : headers_end])
        _, certificates_size = struct.unpack_from("<II", program, entry)
    else:
        digest.update(program[optional + _CHECKSUM + 4 : headers_end])
    hashed = headers_end
    for start, size in sorted(_raw_data(program, table, sections)):
        if start + size > len(program):
            raise _Unreadable
        digest.update(program[start : start + size])
        hashed += size
    if hashed + certificates_size > len(program):
        raise _Unreadable
    digest.update(program[hashed : len(program) - certificates_size])
    return "sha256:" + digest.hexdigest()


def _raw_data(program: bytes, table: int, sections: int) -> list[tuple[int, int]]:
    """Offset and size of each section that has bytes in the file."""
    found = []
    for number in range(sections):
        size, start = struct.unpack_from("<II", program, table + number * _SECTION_BYTES + 16)
        if size:
            found.append((start, size))
    return found
