"""The Authenticode digest of a PE program: what firmware measures into PCR 4, and what Secure Boot signs."""

from __future__ import annotations

import hashlib
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader

MOST_SECTIONS: Final = 96
"""The most that the format's loaders take."""
_CHECKSUM_AT: Final = 64
_DIRECTORIES_AT: Final = {0x10B: 96, 0x20B: 112}
"""Offset of the data directories in the optional header, by its magic: PE32, PE32+."""
_CERTIFICATE_TABLE: Final = 4
_SECTION_BYTES: Final = 40


def authenticode_sha256(program: bytes) -> Sha256Digest:
    """The SHA-256 of a PE/COFF program without its checksum, its certificate table and the entry that points to it.

    Raises: Refused if it is no PE program, or its headers point beyond its end.
    """
    try:
        return Sha256Digest(f"sha256:{_digest(memoryview(program)).hex()}")
    except MalformedTpmData as error:
        raise Refused(
            f"the program is no PE/COFF program: {error.args[0]}", hint="give a kernel with an EFI stub"
        ) from error


def _digest(program: memoryview) -> bytes:
    size = len(program)
    at = _number(program, 0x3C, 4)
    if bytes(program[at : at + 4]) != b"PE\0\0":
        raise MalformedTpmData("it has no signature 'PE'")
    sections, optional_size = _number(program, at + 6, 2), _number(program, at + 20, 2)
    optional = at + 24
    magic = _number(program, optional, 2)
    if magic not in _DIRECTORIES_AT:
        raise MalformedTpmData(f"its optional header begins with 0x{magic:x}")
    header_bytes = _number(program, optional + 60, 4)
    directories = optional + _DIRECTORIES_AT[magic]
    has_table = _number(program, directories - 4, 4) > _CERTIFICATE_TABLE
    entry = directories + 8 * _CERTIFICATE_TABLE
    certificates = _number(program, entry + 4, 4) if has_table else 0
    checksum = optional + _CHECKSUM_AT
    if (
        sections > MOST_SECTIONS
        or header_bytes > size
        or header_bytes < entry + 8
        or certificates > size - header_bytes
    ):
        raise MalformedTpmData("its headers point beyond its end")
    digest = hashlib.sha256(program[:checksum])
    if has_table:
        digest.update(program[checksum + 4 : entry])
        digest.update(program[entry + 8 : header_bytes])
    else:
        digest.update(program[checksum + 4 : header_bytes])
    hashed = header_bytes
    for start, length in _sections(program, optional + optional_size, sections):
        digest.update(program[start : start + length])
        hashed += length
    # What lies behind the sections, but for the certificates, which lie at the end.
    if size > hashed + certificates:
        digest.update(program[hashed : size - certificates])
    return digest.digest()


def _sections(program: memoryview, table: int, count: int) -> list[tuple[int, int]]:
    """Offset and size of the sections' content, in the order of the file."""
    found = []
    for number in range(count):
        length = _number(program, table + number * _SECTION_BYTES + 16, 4)
        start = _number(program, table + number * _SECTION_BYTES + 20, 4)
        if length:
            if start + length > len(program):
                raise MalformedTpmData(f"its section {number + 1} ends beyond it")
            found.append((start, length))
    return sorted(found)


def _number(program: memoryview, at: int, size: int) -> int:
    return int.from_bytes(StructureReader(bytes(program[at : at + size]), "the program").take(size), "little")
