"""What the PCRs are after the measurements of a log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from provisioner.attestation.event_log.parse import Event, EventLog
from provisioner.attestation.tpm.algorithms import SHA256_BYTES

ZEROS: Final = bytes(SHA256_BYTES)
_ONES: Final = b"\xff" * SHA256_BYTES
_DYNAMIC: Final = range(17, 23)
"""PCRs that hold ones until a dynamic launch."""


def extend(value: bytes, *digests: bytes) -> bytes:
    """A PCR of the SHA-256 bank after each digest was extended into it, in order."""
    for digest in digests:
        value = hashlib.sha256(value + digest).digest()
    return value


def after_reset(pcr: int, startup_locality: int = 0) -> bytes:
    """What a PCR is before anything is measured into it."""
    if pcr == 0:
        return bytes(SHA256_BYTES - 1) + bytes([startup_locality])
    return _ONES if pcr in _DYNAMIC else ZEROS


def replay(log: EventLog, pcrs: Iterable[int]) -> Mapping[int, bytes]:
    """The values of `pcrs` of the SHA-256 bank; those without a measurement are what they are after a reset."""
    values = {pcr: after_reset(pcr, log.startup_locality) for pcr in pcrs}
    for event in log.events:
        if event.pcr in values:
            values[event.pcr] = extend(values[event.pcr], event.digest)
    return values


def measured(log: EventLog, pcr: int) -> tuple[Event, ...]:
    """The measurements into `pcr`, in order."""
    return tuple(event for event in log.events if event.pcr == pcr)
