"""Whether prefixes have addresses in common, or lie in one another. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_network
from itertools import accumulate

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


def first_shared_of_each(
    mine: Mapping[str, Sequence[str]], theirs: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, str]]:
    """Of each owner in `mine` whose prefixes there overlap those of another owner in `theirs`: that other one, and of
    the two prefixes the longer one. All are compared at once: sorted, and passed through once in each direction."""
    spans = sorted(
        (*_line(span), is_mine, owner, span[3])
        for is_mine, of_whom in ((False, theirs), (True, mine))
        for owner, prefixes in of_whom.items()
        for span in _spans(tuple(prefixes))
    )
    found: dict[str, tuple[str, str]] = {}
    for is_backward in (False, True):
        # Forward those that reach farthest, backward those that begin first: the one, and the one of another owner.
        near: list[tuple[int, int, str, str]] = []
        for first, end, is_mine, owner, prefix in reversed(spans) if is_backward else spans:
            if not is_mine:
                kept = {each[2]: each for each in near}
                had = kept.get(owner)
                if had is None or is_backward or had[1] < end:
                    kept[owner] = first, end, owner, prefix
                near = sorted(kept.values(), key=(lambda each: each[0]) if is_backward else (lambda each: -each[1]))[:2]
            elif owner not in found:
                for begin, last, other, its in near:
                    if other != owner and begin <= end and first <= last:
                        found[owner] = other, prefix if end - first <= last - begin else its
                        break
    return found


def those_inside(prefixes: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Those of `prefixes` of which all addresses are those of one of `others`."""
    lines = sorted(_line(each) for each in _spans(tuple(others)))
    begins = [first for first, _ in lines]
    reach = [-1, *accumulate((end for _, end in lines), max)]
    spans = zip(prefixes, _spans(tuple(prefixes)), strict=True)
    return tuple(
        each
        for each, (first, end) in ((e, _line(span)) for e, span in spans)
        if end <= reach[bisect_right(begins, first)]
    )


def is_inside(prefix: str, others: Iterable[str]) -> bool:
    """Whether all addresses of `prefix` are those of one of `others`."""
    ((version, first, end, _),) = _spans((prefix,))
    return any(v == version and f <= first and end <= e for v, f, e, _ in _spans(tuple(others)))


@lru_cache(maxsize=4096)
def _spans(prefixes: tuple[str, ...]) -> tuple[_Span, ...]:
    subnets = [ip_network(each) for each in prefixes]
    return tuple((each.version, int(each.network_address), int(each.broadcast_address), str(each)) for each in subnets)


def _line(span: _Span) -> tuple[int, int]:
    """First and last address as numbers that are never the same in both versions."""
    version, first, end, _ = span
    return (version << 128) + first, (version << 128) + end
