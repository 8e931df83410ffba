"""An event log as UEFI firmware writes it, made event by event: of a boot through iPXE into a kernel, and of others."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from provisioner.attestation.measurements import load_options_sha256
from provisioner.attestation.tpm.algorithms import Algorithm

SHA256_ONLY: Final = ((Algorithm.SHA256, 32),)
TWO_BANKS: Final = ((Algorithm.SHA1, 20), (Algorithm.SHA256, 32))
GLOBAL_VARIABLE: Final = UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c")


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@dataclass(frozen=True)
class LoggedEvent:
    """As in the log."""

    pcr: int
    type: int
    digest: bytes
    data: bytes


def write_log(
    events: tuple[LoggedEvent, ...], banks: tuple[tuple[int, int], ...] = TWO_BANKS, locality: int | None = None
) -> bytes:
    """binary_bios_measurements."""
    spec = b"Spec ID Event03\0" + struct.pack("<IBBBB", 0, 0, 2, 0, 2) + struct.pack("<I", len(banks))
    spec += b"".join(struct.pack("<HH", *bank) for bank in banks) + b"\0"
    log = struct.pack("<II20sI", 0, 3, b"", len(spec)) + spec
    if locality is not None:
        events = (LoggedEvent(0, 3, bytes(32), b"StartupLocality\0" + bytes([locality])), *events)
    for event in events:
        log += struct.pack("<III", event.pcr, event.type, len(banks))
        for bank, size in banks:
            log += struct.pack("<H", bank) + (event.digest if bank == Algorithm.SHA256 else b"\x01" * size)
        log += struct.pack("<I", len(event.data)) + event.data
    return log


def node(kind: int, part: int, body: bytes) -> bytes:
    return struct.pack("<BBH", kind, part, 4 + len(body)) + body


END: Final = node(0x7F, 0xFF, b"")
FROM_NETWORK: Final = (
    node(2, 1, struct.pack("<II", 0x0A0341D0, 0))
    + node(1, 1, bytes([0, 3]))
    + node(3, 11, bytes.fromhex("525400123456") + bytes(26) + b"\1")
    + node(3, 12, bytes(4) + bytes([10, 80, 0, 2]) + bytes(11))
    + END
)


def program(digest: bytes, path: bytes = FROM_NETWORK, kind: int = 0x80000003, pcr: int = 4) -> LoggedEvent:
    return LoggedEvent(pcr, kind, digest, struct.pack("<QQQQ", 0x1000, 0x2000, 0, len(path)) + path)


def variable(pcr: int, kind: int, name: str, value: bytes) -> LoggedEvent:
    data = GLOBAL_VARIABLE.bytes_le + struct.pack("<QQ", len(name), len(value)) + name.encode("utf-16-le") + value
    return LoggedEvent(pcr, kind, sha256(data), data)


def action(pcr: int, text: bytes) -> LoggedEvent:
    return LoggedEvent(pcr, 0x80000007, sha256(text), text)


def separator(pcr: int) -> LoggedEvent:
    return LoggedEvent(pcr, 4, sha256(bytes(4)), bytes(4))


def tagged(tag: int, text: bytes, digest: bytes) -> LoggedEvent:
    return LoggedEvent(9, 6, digest, struct.pack("<II", tag, len(text) + 1) + text + b"\0")


KERNEL: Final = sha256(b"a kernel's program")
INITRD: Final = sha256(b"an initrd")
IPXE: Final = sha256(b"iPXE's program")
ARGUMENTS: Final = "provisioner.server=r1-s01 quiet"
LOAD_OPTIONS: Final = bytes.fromhex(load_options_sha256("vmlinuz", ARGUMENTS)[7:])


@dataclass(frozen=True)
class BootParts:
    """What differs between boots."""

    firmware: bytes = b"firmware 1.0"
    secure_boot: bytes = b"\1"
    option_rom: bytes = sha256(b"an option ROM")
    ipxe: bytes = IPXE
    kernel: bytes = KERNEL
    load_options: bytes = LOAD_OPTIONS
    initrd: bytes = INITRD
    boot_order: bytes = b"\0\0"

    def but(self, **changes: bytes) -> BootParts:
        return replace(self, **changes)


def a_boot(parts: BootParts = BootParts()) -> tuple[LoggedEvent, ...]:
    """From power-on to the kernel's own, in the order of OVMF."""
    return (
        LoggedEvent(0, 8, sha256(b"1\0"), b"1\0"),
        LoggedEvent(0, 0x80000008, sha256(parts.firmware), struct.pack("<QQ", 0x820000, 0xE0000)),
        variable(7, 0x80000001, "SecureBoot", parts.secure_boot),
        *(variable(7, 0x80000001, name, name.encode()) for name in ("PK", "KEK", "db", "dbx")),
        separator(7),
        variable(1, 0x80000002, "BootOrder", parts.boot_order),
        variable(1, 0x80000002, "Boot0000", b"UiApp"),
        program(parts.option_rom, kind=0x80000004, pcr=2),
        action(4, b"Calling EFI Application from Boot Option"),
        *(separator(pcr) for pcr in range(7)),
        program(parts.ipxe),
        program(parts.kernel, path=node(4, 4, "vmlinuz\0".encode("utf-16-le")) + END),
        tagged(0x8F3B22ED, b"LOADED_IMAGE::LoadOptions", parts.load_options),
        tagged(0x8F3B22EC, b"Linux initrd", parts.initrd),
        action(5, b"Exit Boot Services Invocation"),
        action(5, b"Exit Boot Services Returned with Success"),
    )


def pcr_values(events: tuple[LoggedEvent, ...], pcrs: tuple[int, ...], locality: int = 0) -> Mapping[int, bytes]:
    """By the definition of an extend, and nothing of ours."""
    values = {pcr: bytes(32) for pcr in pcrs}
    values[0] = bytes(31) + bytes([locality])
    for event in events:
        if event.pcr in values:
            values[event.pcr] = sha256(values[event.pcr] + event.digest)
    return values
