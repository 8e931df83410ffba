"""Whether prefixes have addresses in common, or lie in one another. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_network

_Span = tuple[int, int, int, str]
"""Version, first and last address as numbers, and the prefix."""


def first_shared(one: Sequence[str], other: Sequence[str]) -> str | None:
    """A prefix, of two that overlap the longer one; None if no two do."""
    last: list[_Span | None] = [None, None]  # of each list the one that reaches farthest so far
    marked = [(span, side) for side, spans in enumerate((_spans(tuple(one)), _spans(tuple(other)))) for span in spans]
    for span, side in sorted(marked):
        version, first, end, prefix = span
        before = last[1 - side]
        if before is not None and before[0] == version and before[2] >= first:
            return prefix if end - first <= before[2] - before[1] else before[3]
        mine = last[side]
        if mine is None or mine[0] != version or mine[2] < end:
            last[side] = span
    return None


def is_inside(prefix: str, others: Iterable[str]) -> bool:
    """Whether all addresses of `prefix` are those of one of `others`."""
    ((version, first, end, _),) = _spans((prefix,))
    return any(v == version and f <= first and end <= e for v, f, e, _ in _spans(tuple(others)))


@lru_cache(maxsize=4096)
def _spans(prefixes: tuple[str, ...]) -> tuple[_Span, ...]:
    subnets = [ip_network(each) for each in prefixes]
    return tuple((each.version, int(each.network_address), int(each.broadcast_address), str(each)) for each in subnets)
