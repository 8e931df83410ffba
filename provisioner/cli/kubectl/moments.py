"""Times as people write them on a command line."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import parse_time
from provisioner.cli.kubectl.failing import BadInput

_SPAN: Final = re.compile(r"\+?((\d+)d)?((\d+)h)?((\d+)m)?((\d+)s)?")
_EXPECTED: Final = "write a span, such as 30m, 2h or 1d, or RFC 3339, such as 2026-01-31T18:00:00Z"
LONGEST: Final = timedelta(days=90)


def read_span(text: str, what: str) -> timedelta:
    """`90s`, `30m`, `1h30m`, `2d`. Raises: BadInput."""
    found = _SPAN.fullmatch(text)
    days, hours, minutes, seconds = (int(found[i] or 0) for i in (2, 4, 6, 8)) if found else (0, 0, 0, 0)
    span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds) if days < 10_000 else LONGEST * 2
    if not found or not span:
        raise BadInput(f"{what} is {text!r}, which is no span of time", hint="write it as 90s, 30m, 1h30m or 2d")
    return span


def read_deadline(text: str, now: datetime) -> datetime:
    """A span from now, or RFC 3339 with an offset. Raises: BadInput, also for the past and beyond 90 days."""
    if _SPAN.fullmatch(text) and text:
        moment = now + read_span(text, "--deadline")
    else:
        try:
            moment = parse_time(text)
        except ValueError as error:
            raise BadInput(f"--deadline is {text!r}, which is no time", hint=_EXPECTED) from error
        if moment.tzinfo is None or "T" not in text.upper():
            raise BadInput(f"--deadline is {text!r}, which could be several moments", hint=_EXPECTED)
    if not now < moment <= now + LONGEST:
        side = "is over already" if moment <= now else f"is more than {LONGEST.days} days ahead"
        raise BadInput(
            f"--deadline {text} {side}", hint="name a later moment, or use --now" if moment <= now else _EXPECTED
        )
    return moment
