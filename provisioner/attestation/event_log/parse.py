"""Crypto-agile event logs, as UEFI firmware keeps them and Linux shows them (binary_bios_measurements).

Source: TCG PC Client Platform Firmware Profile, section 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LARGEST_LOG_BYTES: Final = 128 * 1024
MOST_EVENTS: Final = 1024


@dataclass(frozen=True)
class Event:
    """One measurement. number: from 1, the Spec ID event not counted. digest: of the SHA-256 bank. data: the event's
    own, which the digest need not be of (it is what firmware says, and nothing signs it)."""

    number: int
    pcr: int
    type: int
    digest: bytes
    data: bytes


@dataclass(frozen=True)
class EventLog:
    """startup_locality: by which PCR 0 begins, 0, 3 or 4."""

    events: tuple[Event, ...]
    startup_locality: int = 0


def parse_event_log(data: bytes) -> EventLog:
    """A whole log with a SHA-256 bank, of at most LARGEST_LOG_BYTES and MOST_EVENTS. Raises: MalformedTpmData."""
    raise NotImplementedError
