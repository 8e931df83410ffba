"""What firmware and kernel measure, computed from files, and profiles of firmware as they are kept."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.attestation.event_log.parse import parse_event_log
from provisioner.attestation.measurements import FIRMWARE_PCRS, learn_firmware, load_options_sha256
from tests.attestation.firmware_log import BootParts, a_boot, sha256, write_log
from tests.attestation.machine import FIRMWARE, IMAGE, LOG

HEADERS = 512


def a_program(*, plus: bool = True, certificate: bytes = b"", checksum: int = 0, trailing: bytes = b"") -> bytes:
    """A PE program of two sections, the later one first in the table."""
    optional = struct.pack("<H", 0x20B if plus else 0x10B) + bytes(58) + struct.pack("<II", HEADERS, checksum)
    optional += bytes((108 if plus else 92) - len(optional)) + struct.pack("<I", 16)
    before = HEADERS + 300 + 200 + len(trailing)
    entries = [b"\0" * 8] * 16
    if certificate:
        entries[4] = struct.pack("<II", before, len(certificate))
    optional += b"".join(entries)
    head = b"MZ" + bytes(58) + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", 0x8664, 3, 0, 0, 0, len(optional), 0) + optional
    sections = ((b".data", 200, HEADERS + 300), (b".text", 300, HEADERS), (b".bss", 0, 0))
    for name, size, start in sections:
        head += struct.pack("<8sIIII", name, size, 0x1000, size, start) + bytes(16)
    return head.ljust(HEADERS, b"\0") + b"t" * 300 + b"d" * 200 + trailing + certificate


def by_hand(program: bytes, *, plus: bool) -> str:
    checksum, entry = 64 + 24 + 64, 64 + 24 + (112 if plus else 96) + 32
    hashed = program[:checksum] + program[checksum + 4 : entry] + program[entry + 8 :]
    return f"sha256:{hashlib.sha256(hashed).hexdigest()}"


@pytest.mark.parametrize("plus", [True, False])
@pytest.mark.parametrize("trailing", [b"", b"debug information"])
def test_a_program_is_measured_without_checksum_and_signature(plus: bool, trailing: bytes) -> None:
    plain = a_program(plus=plus, trailing=trailing)
    expected = by_hand(plain, plus=plus)
    assert authenticode_sha256(plain) == expected
    assert authenticode_sha256(a_program(plus=plus, trailing=trailing, checksum=77)) == expected
    assert authenticode_sha256(a_program(plus=plus, trailing=trailing, certificate=b"signed" * 8)) == expected
    for at in (2, 300, HEADERS, HEADERS + 299, len(plain) - 1):
        changed = bytearray(plain)
        changed[at] ^= 1
        assert authenticode_sha256(bytes(changed)) != expected, at


@pytest.mark.parametrize(
    "program",
    [
        b"",
        b"MZ",
        b"\x7fELF" + bytes(2000),
        a_program()[: HEADERS - 1],
        a_program()[:-1],
        a_program().replace(struct.pack("<I", HEADERS), b"\xff\xff\xff\xff"),
        a_program().replace(b"PE\0\0", b"PE\0\1"),
        a_program().replace(struct.pack("<H", 0x20B), b"\x0c\x02", 1),
        a_program(certificate=b"x" * 8).replace(struct.pack("<II", HEADERS + 500, 8), struct.pack("<II", 9, 1 << 31)),
    ],
)
def test_what_is_no_program_is_refused(program: bytes) -> None:
    with pytest.raises(Refused, match="is no PE/COFF program"):
        authenticode_sha256(program)


def test_a_command_line_is_measured_as_the_efi_stub_gets_it() -> None:
    wide = b"v\0m\0l\0i\0n\0u\0z\0 \0q\0u\0i\0e\0t\0\0\0"
    assert load_options_sha256("vmlinuz", "quiet") == f"sha256:{hashlib.sha256(wide).hexdigest()}"


def test_the_digest_of_a_profile_is_of_what_is_judged() -> None:
    first, *others = FIRMWARE.events
    assert replace(FIRMWARE, name="another").digest == FIRMWARE.digest
    assert replace(FIRMWARE, events=(replace(first, what="another"), *others)).digest == FIRMWARE.digest
    assert replace(FIRMWARE, events=(replace(first, digest=bytes(32)), *others)).digest != FIRMWARE.digest
    assert replace(FIRMWARE, judged=frozenset({0, 1, 2, 3, 7})).digest != FIRMWARE.digest
    assert replace(FIRMWARE, startup_locality=3).digest != FIRMWARE.digest


def test_a_profile_holds_the_firmware_and_the_boot_program_and_nothing_of_the_kernel() -> None:
    assert {event.pcr for event in FIRMWARE.events} == FIRMWARE_PCRS | {4}
    assert [event.digest for event in FIRMWARE.of(4)] == [BootParts().ipxe]
    assert all(event.what for event in FIRMWARE.events)


def test_nothing_is_learned_of_a_boot_into_another_kernel() -> None:
    for log in (parse_event_log(write_log(())), parse_event_log(write_log(a_boot(BootParts(kernel=sha256(b"x")))))):
        with pytest.raises(Refused, match="last program is not the kernel"):
            learn_firmware("x", log, IMAGE.kernel)
    assert learn_firmware("model-a-1.0", LOG, IMAGE.kernel) == FIRMWARE
