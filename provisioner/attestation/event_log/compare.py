"""Where a log leaves what was expected: the first component that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from provisioner.attestation.event_log.parse import Event


@dataclass(frozen=True)
class ExpectedEvent:
    """A measurement that belongs there. what: for a person, such as `firmware volume …`."""

    pcr: int
    digest: bytes
    what: str


def first_difference(pcr: int, events: Sequence[Event], expected: Sequence[ExpectedEvent]) -> str | None:
    """The first component of `pcr` that differs, in words with both digests; nothing if none does."""
    raise NotImplementedError
