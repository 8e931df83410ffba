"""A trace of one machine's boot: who wants one says so in an annotation, with the moment at which it ends by itself.

On a Server it is a time: what comes from the Server's MAC addresses is told. On a Rack it is a time and MAC addresses,
for machines that are no Server's yet. Boot hosts tell what they hear as Events of that object. The annotation asks for
words alone: nothing is decided on it, and what is wrong with it is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import read_time, rfc3339
from provisioner.api.machinery.values import parse_mac

TRACE_ANNOTATION: Final = "provisioner.dev/trace"
TRACED_REASON: Final = "BootTraced"
"""Reason of the Events that tell what was heard."""

LONGEST_TRACE: Final = timedelta(hours=1)
CLOCKS_DIFFER: Final = timedelta(minutes=10)
"""So much later than LONGEST_TRACE an end may be by the boot host's clock. What ends later yet is no trace, so that
none is left on for ever."""
MOST_MACS: Final = 8
_LONGEST_VALUE: Final = 256


@dataclass(frozen=True)
class TraceRequest:
    """until: when it ends. macs: those that are asked for by name, in lower case; none on a Server."""

    until: datetime
    macs: frozenset[str]


def trace_value(until: datetime, macs: Iterable[str] = ()) -> str:
    """The annotation's value."""
    return " ".join((rfc3339(until), *sorted(macs)))


def read_trace(body: Mapping[str, Any] | None, now: datetime) -> TraceRequest | None:
    """What an object (its JSON) asks for; None if it asks for none, for one that is over, or for one that never is."""
    annotations = ((body or {}).get("metadata") or {}).get("annotations") or {}
    value = annotations.get(TRACE_ANNOTATION)
    if not isinstance(value, str) or len(value) > _LONGEST_VALUE or not value.split():
        return None
    first, *named = value.split()
    until = read_time(first)
    if until is None or not now < until <= now + LONGEST_TRACE + CLOCKS_DIFFER or len(named) > MOST_MACS:
        return None
    try:
        return TraceRequest(until, frozenset(parse_mac(mac) for mac in named))
    except Refused:
        return None
