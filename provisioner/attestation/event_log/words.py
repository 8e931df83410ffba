"""What an event is, for a person. An event's data are a stranger's: read within bounds, shown as printable text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from provisioner.attestation.event_log.device_path import device_path_words
from provisioner.attestation.event_log.parse import Event
from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader

LONGEST_WORDS: Final = 160
EV_SEPARATOR: Final = 0x04
EV_EVENT_TAG: Final = 0x06
EV_IPL: Final = 0x0D
EV_EFI_BOOT_SERVICES_APPLICATION: Final = 0x80000003
EFI_PROGRAMS: Final = frozenset((EV_EFI_BOOT_SERVICES_APPLICATION, 0x80000004, 0x80000005))
"""Application, boot services driver, runtime driver."""
INITRD_TAG: Final = 0x8F3B22EC
LOAD_OPTIONS_TAG: Final = 0x8F3B22ED
"""By which the Linux EFI stub tags what it measures into PCR 9."""
_NAMES: Final[Mapping[int, str]] = {
    0x01: "POST code",
    0x05: "action",
    0x07: "CRTM contents",
    0x08: "CRTM version",
    0x09: "CPU microcode",
    0x0A: "platform configuration",
    0x0B: "table of devices",
    0x0C: "compact hash",
    0x0E: "partition data",
    0x0F: "non-host code",
    0x10: "non-host configuration",
    0x11: "non-host information",
    0x12: "omitted boot device events",
    0x80000006: "GUID partition table",
    0x80000008: "firmware volume",
    0x80000009: "handoff tables",
    0x8000000A: "firmware volume",
    0x8000000B: "handoff tables",
    0x80000010: "HCRTM event",
    0x800000E1: "SPDM firmware",
}


def describe(event: Event) -> str:
    """Such as `boot program PciRoot(0x0)/Pci(0x3,0x0)/MAC(525400123456)`; at most LONGEST_WORDS printable characters,
    whatever the data are."""
    try:
        words = _READERS.get(event.type, _plain)(event)
    except MalformedTpmData:
        words = f"{_NAMES.get(event.type, f'event of type 0x{event.type:x}')} with data that cannot be read"
    return words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 1]}…"


def printable(data: bytes, encoding: str = "ascii") -> str:
    """Text of a stranger: what cannot be printed is `?`, what follows a NUL is left out."""
    text = data[: 4 * LONGEST_WORDS].decode(encoding, "replace").partition("\0")[0]
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text[:LONGEST_WORDS])


def _plain(event: Event) -> str:
    name = _NAMES.get(event.type, f"event of type 0x{event.type:x}")
    if event.data and all(0x20 <= byte < 0x7F for byte in event.data.rstrip(b"\0")[:LONGEST_WORDS]):
        return f"{name} {printable(event.data)}".rstrip()
    return name


def _separator(event: Event) -> str:
    return "separator" if event.data in (bytes(4), b"\xff" * 4) else "separator of an error"


def _action(event: Event) -> str:
    return f"action '{printable(event.data)}'"


def _program(kind: str) -> Callable[[Event], str]:
    def words(event: Event) -> str:
        """UEFI_IMAGE_LOAD_EVENT: place, size, link-time address, device path."""
        reader = StructureReader(event.data, "the event", order="little")
        reader.take(24)
        path = reader.take(min(reader.uint64(), reader.left))
        return f"{kind} {device_path_words(path)}".rstrip()

    return words


def _variable(event: Event) -> str:
    """UEFI_VARIABLE_DATA: GUID, lengths of name and data, name in UTF-16, data."""
    reader = StructureReader(event.data, "the event", order="little")
    reader.take(16)
    characters, size = reader.uint64(), reader.uint64()
    name = printable(reader.take(min(characters * 2, 2 * LONGEST_WORDS)), "utf-16-le")
    return f"variable {name} of {size} bytes"


def _tagged(event: Event) -> str:
    reader = StructureReader(event.data, "the event", order="little")
    tag, size = reader.uint32(), reader.uint32()
    text = printable(reader.take(min(size, reader.left)))
    if tag == INITRD_TAG:
        return f"initrd ('{text}')"
    if tag == LOAD_OPTIONS_TAG:
        return f"command line ('{text}')"
    return f"tagged event 0x{tag:08x} '{text}'"


def _loader(event: Event) -> str:
    """EV_IPL: GRUB writes ASCII, systemd UTF-16."""
    is_wide = len(event.data) > 1 and event.data[1] == 0
    return f"boot loader '{printable(event.data, 'utf-16-le' if is_wide else 'ascii')}'"


_READERS: Final[Mapping[int, Callable[[Event], str]]] = {
    EV_SEPARATOR: _separator,
    0x05: _action,
    EV_EVENT_TAG: _tagged,
    EV_IPL: _loader,
    0x80000001: _variable,
    0x80000002: _variable,
    0x80000007: _action,
    0x8000000C: _variable,
    0x800000E0: _variable,
    EV_EFI_BOOT_SERVICES_APPLICATION: _program("boot program"),
    0x80000004: _program("boot services driver"),
    0x80000005: _program("runtime driver"),
}
