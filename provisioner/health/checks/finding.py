"""How one check came out at one look, in the words that a person gets. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SETTLE_SECONDS: Final = 60.0
"""How long most things may still come right after a boot: a link, a clock, a kubelet."""

MAX_MESSAGE: Final = 1024


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one look saw. `ok` is None while it cannot be told yet.

    patience_seconds: for how long the check may look like this until it has failed; 0 where no time can help.
    """

    name: str
    ok: bool | None
    reason: str
    message: str
    patience_seconds: float = SETTLE_SECONDS


def fine(name: str, observed: str) -> Finding:
    """The check passes on what was observed."""
    return Finding(name=name, ok=True, reason="AsExpected", message=printable(observed))


def wrong(
    name: str, reason: str, *, observed: str, expected: str, remedy: str, patience_seconds: float = SETTLE_SECONDS
) -> Finding:
    """The check does not pass; it has failed once that lasted `patience_seconds`."""
    message = printable(f"{printable(observed, 480)}; expected: {expected}; remedy: {remedy}")
    return Finding(name=name, ok=False, reason=reason, message=message, patience_seconds=patience_seconds)


def not_yet(name: str, reason: str, message: str, *, patience_seconds: float = SETTLE_SECONDS) -> Finding:
    """It cannot be told yet; it has failed once that lasted `patience_seconds`."""
    return Finding(name=name, ok=None, reason=reason, message=printable(message), patience_seconds=patience_seconds)


def printable(text: str, limit: int = MAX_MESSAGE) -> str:
    """`text` on one line, of at most `limit` characters: much of it was said by a machine or by a check's pod."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
