"""How lengths of time, counts, and text that others wrote are told to people: on terminals and on pages alike."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime


def plain(words: str) -> str:
    """One line, whose characters all show themselves: others, such as ESC and marks of direction, are shown as �."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in words)


def clip(words: str, length: int) -> str:
    """At most `length` characters."""
    return words if len(words) <= length else words[: length - 1] + "…"


def some(names: Sequence[str], most: int = 8) -> str:
    """The first names for a sentence, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def quantity(count: int, one: str, many: str = "") -> str:
    """The count and its noun, with the verb if the sentence has one: `1 server waits`, `2 servers wait`. many: `one`
    with an s if empty."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def ago(moment: datetime, now: datetime) -> str:
    """How long ago (or ahead) in the one or two units that matter: `4 s`, `12 min`, `3 h 5 min`, `2 d 4 h`."""
    return span(abs((now - moment).total_seconds()))


def span(length_seconds: float) -> str:
    """The same of a length of time."""
    seconds = int(length_seconds)
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, seconds = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h" if hours else f"{days} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {seconds} s" if minutes < 5 and seconds else f"{minutes} min"
    return f"{seconds} s"
