"""Where a log leaves what was expected: the first component that differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from provisioner.attestation.event_log.parse import Event
from provisioner.attestation.event_log.words import describe


@dataclass(frozen=True)
class ExpectedEvent:
    """A measurement that belongs there. what: for a person, such as `iPXE` or `variable SecureBoot`."""

    pcr: int
    digest: bytes
    what: str


def first_difference(pcr: int, events: Sequence[Event], expected: Sequence[ExpectedEvent]) -> str | None:
    """The first component of `pcr` that differs, in words with both digests; nothing if none does.

    The words for what is there are the log's, which is no proof of them; the digests are proved.
    """
    for observed, wanted in zip_longest(events, expected):
        if observed is None:
            return f"PCR {pcr}: {wanted.what} ({short(wanted.digest)}) was not measured"
        if wanted is None:
            return (
                f"PCR {pcr}: {describe(observed)} ({short(observed.digest)}) was measured, and nothing more is expected"
            )
        if observed.digest != wanted.digest:
            return (
                f"PCR {pcr}: {wanted.what} is {short(observed.digest)} ({describe(observed)}), "
                f"expected {short(wanted.digest)}"
            )
    return None


def short(digest: bytes) -> str:
    """`sha256:` and twelve digits: enough to find it in an Image or a profile."""
    return f"sha256:{digest.hex()[:12]}…"
