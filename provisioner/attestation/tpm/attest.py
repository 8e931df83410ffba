"""TPMS_ATTEST of type quote: what a TPM signs when it is asked for its PCRs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provisioner.attestation.tpm.algorithms import PCR_COUNT, name_of
from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader

LARGEST_ATTEST_BYTES: Final = 1024
_GENERATED_VALUE: Final = 0xFF544347
"""TPM_GENERATED_VALUE: only a TPM signs, with a restricted key, what begins with it."""
_ATTEST_QUOTE: Final = 0x8018
_MOST_NAME_BYTES: Final = 66
_MOST_EXTRA_BYTES: Final = 64
_MOST_DIGEST_BYTES: Final = 64
_MOST_BANKS: Final = 16


@dataclass(frozen=True)
class Clock:
    """Of TPMS_CLOCK_INFO. reset_count: TPM resets, and so boots from power-on or reset."""

    reset_count: int
    restart_count: int


@dataclass(frozen=True)
class Quote:
    """What the TPM signed. selection: by bank (TPM_ALG_ID), in the order of the structure, the PCRs quoted."""

    qualified_signer: bytes
    extra_data: bytes
    clock: Clock
    selection: tuple[tuple[int, frozenset[int]], ...]
    pcr_digest: bytes


def parse_quote(data: bytes) -> Quote:
    """A whole TPMS_ATTEST of type quote. Raises: MalformedTpmData, also for any other type of attestation."""
    if len(data) > LARGEST_ATTEST_BYTES:
        raise MalformedTpmData(f"the quote has {len(data)} bytes, at most {LARGEST_ATTEST_BYTES} are expected")
    reader = StructureReader(data, "the quote")
    if (magic := reader.uint32()) != _GENERATED_VALUE:
        raise MalformedTpmData(f"the quote begins with 0x{magic:08x}, expected 0x{_GENERATED_VALUE:08x}")
    if (kind := reader.uint16()) != _ATTEST_QUOTE:
        raise MalformedTpmData(f"the attestation is of type 0x{kind:04x}, expected a quote, 0x{_ATTEST_QUOTE:04x}")
    signer, extra = reader.sized(_MOST_NAME_BYTES), reader.sized(_MOST_EXTRA_BYTES)
    reader.take(8)  # milliseconds that the TPM was powered
    clock = Clock(reader.uint32(), reader.uint32())
    if (safe := reader.uint8()) > 1:
        raise MalformedTpmData(f"the quote's clock is safe by {safe}, expected 0 or 1")
    reader.take(8)  # version of the firmware
    selection = _read_selection(reader)
    digest = reader.sized(_MOST_DIGEST_BYTES)
    reader.end()
    return Quote(signer, extra, clock, selection, digest)


def _read_selection(reader: StructureReader) -> tuple[tuple[int, frozenset[int]], ...]:
    banks = reader.uint32()
    if banks > _MOST_BANKS:
        raise MalformedTpmData(f"the quote selects {banks} banks of PCRs, at most {_MOST_BANKS} are expected")
    selection: list[tuple[int, frozenset[int]]] = []
    for _ in range(banks):
        bank = reader.uint16()
        if bank in (known for known, _ in selection):
            raise MalformedTpmData(f"the quote selects the bank {name_of(bank)} twice")
        if (size := reader.uint8()) > PCR_COUNT // 8 + 1:
            raise MalformedTpmData(f"the quote selects by {size} bytes of a bank, expected {PCR_COUNT // 8}")
        bits = int.from_bytes(reader.take(size), "little")
        selection.append((bank, frozenset(index for index in range(size * 8) if bits >> index & 1)))
    return tuple(selection)
