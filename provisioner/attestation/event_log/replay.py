"""What the PCRs are after the measurements of a log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from provisioner.attestation.event_log.parse import Event, EventLog


def extend(value: bytes, *digests: bytes) -> bytes:
    """A PCR of the SHA-256 bank after each digest was extended into it, in order."""
    for digest in digests:
        value = hashlib.sha256(value + digest).digest()
    return value


def replay(log: EventLog, pcrs: Iterable[int]) -> Mapping[int, bytes]:
    """The values of `pcrs` of the SHA-256 bank; those without a measurement are what they are after a reset."""
    raise NotImplementedError


def measured(log: EventLog, pcr: int) -> tuple[Event, ...]:
    """The measurements into `pcr`, in order."""
    raise NotImplementedError
