"""Crypto-agile event logs, as UEFI firmware keeps them and Linux shows them (binary_bios_measurements).

Source: TCG PC Client Platform Firmware Profile, section 10.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from provisioner.attestation.tpm.algorithms import PCR_COUNT, Algorithm, name_of
from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader

LARGEST_LOG_BYTES: Final = 128 * 1024
MOST_EVENTS: Final = 1024
EV_NO_ACTION: Final = 0x03
_SPEC_ID: Final = b"Spec ID Event03\0"
_STARTUP_LOCALITY: Final = b"StartupLocality\0"
_MOST_BANKS: Final = 8
_LARGEST_HEAD: Final = 12 + _MOST_BANKS * (2 + 64) + 4
_DIGEST_BYTES: Final = {Algorithm.SHA1: 20, Algorithm.SHA256: 32, Algorithm.SHA384: 48, Algorithm.SHA512: 64}


class Event(NamedTuple):
    """One measurement. number: from 1, what is not measured is not counted. digest: of the SHA-256 bank. data: the
    event's own, which the digest need not be of (it is what firmware says, and nothing signs it)."""

    number: int
    pcr: int
    type: int
    digest: bytes
    data: bytes


@dataclass(frozen=True)
class EventLog:
    """The measurements, in order. startup_locality: by which PCR 0 begins: 0, 3 or 4."""

    events: tuple[Event, ...]
    startup_locality: int = 0


def parse_event_log(data: bytes) -> EventLog:
    """A whole log with a SHA-256 bank, of at most LARGEST_LOG_BYTES and MOST_EVENTS. Raises: MalformedTpmData."""
    if len(data) > LARGEST_LOG_BYTES:
        raise MalformedTpmData(f"the event log has {len(data)} bytes, at most {LARGEST_LOG_BYTES} are expected")
    reader = StructureReader(data, "the event log", order="little")
    banks = _read_header(reader)
    layout, order = _layout(reader.peek(_LARGEST_HEAD), banks)
    at = order.index(Algorithm.SHA256)
    heads = [len(order), *order]
    events: list[Event] = []
    locality, seen = 0, 0
    while reader.left:
        if (seen := seen + 1) > MOST_EVENTS:
            raise MalformedTpmData(f"the event log has more than {MOST_EVENTS} events")
        pcr, kind, count, *fields, size = reader.unpack(layout)
        if [count, *fields[::2]] != heads:
            raise MalformedTpmData(
                f"event {seen} of the log has not one digest of each bank, in the order of the first event"
            )
        content = reader.take(size)
        if kind != EV_NO_ACTION:
            if pcr >= PCR_COUNT:
                raise MalformedTpmData(f"event {seen} of the log is of PCR {pcr}, there are {PCR_COUNT}")
            events.append(Event(len(events) + 1, pcr, kind, fields[2 * at + 1], content))
        elif content.startswith(_STARTUP_LOCALITY) and len(content) > len(_STARTUP_LOCALITY):
            locality = _read_locality(content[len(_STARTUP_LOCALITY)], is_first=not any(e.pcr == 0 for e in events))
    return EventLog(tuple(events), locality)


def _layout(event: bytes, banks: Mapping[int, int]) -> tuple[struct.Struct, list[int]]:
    """How the head of every event is laid out, and the order of the banks in it, by the first event.

    Each has one digest of each bank, in whatever order the firmware likes, always the same one.
    """
    order: list[int] = []
    reader = StructureReader(event, "the first event of the log", order="little")
    if event:
        reader.take(8)
        if (count := reader.uint32()) != len(banks):
            raise MalformedTpmData(f"the first event of the log has {count} digests, expected {len(banks)}")
        for _ in range(count):
            bank = reader.uint16()
            if bank not in banks or bank in order:
                raise MalformedTpmData(f"the first event of the log has a digest of {name_of(bank)} twice, or too many")
            order.append(bank)
            reader.take(banks[bank])
    order = order or list(banks)
    return struct.Struct("<III" + "".join(f"H{banks[bank]}s" for bank in order) + "I"), order


def _read_header(reader: StructureReader) -> Mapping[int, int]:
    """The first event, in the format of TPM 1.2: names the banks and the sizes of their digests."""
    pcr, kind = reader.uint32(), reader.uint32()
    reader.take(20)
    size = reader.uint32()
    if pcr != 0 or kind != EV_NO_ACTION or size > 1024:
        raise MalformedTpmData("the event log does not begin with a Spec ID event; is it one of a TPM 1.2?")
    header = StructureReader(reader.take(size), "the event log's Spec ID event", order="little")
    if header.take(len(_SPEC_ID)) != _SPEC_ID:
        raise MalformedTpmData("the event log is not crypto-agile: its first event is no 'Spec ID Event03'")
    header.take(8)  # platform class, version, size of a pointer
    count = header.uint32()
    if not 1 <= count <= _MOST_BANKS:
        raise MalformedTpmData(f"the event log has {count} banks, expected 1 to {_MOST_BANKS}")
    banks: dict[int, int] = {}
    for _ in range(count):
        bank, size = header.uint16(), header.uint16()
        if size != _DIGEST_BYTES.get(bank, size) or not 1 <= size <= 64 or bank in banks:  # type: ignore[call-overload]
            raise MalformedTpmData(f"the event log's bank {name_of(bank)} is named twice, or has {size} bytes")
        banks[bank] = size
    header.take(header.uint8())  # what the vendor has to say
    header.end()
    if Algorithm.SHA256 not in banks:
        raise MalformedTpmData(f"the event log has no bank SHA256, but {', '.join(map(name_of, banks))}")
    return banks


def _read_locality(locality: int, *, is_first: bool) -> int:
    if locality not in (0, 3, 4) or not is_first:
        raise MalformedTpmData(
            f"the event log says startup locality {locality}, expected 0, 3 or 4 before all of PCR 0"
        )
    return locality
