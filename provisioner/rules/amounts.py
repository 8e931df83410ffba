"""Counts and shares of servers, as people write them. Pure."""

from __future__ import annotations

import math


def resolve_amount(amount: int | str, of: int) -> int:
    """A count, or a share such as "10%" of `of`, rounded up; 0 stays 0."""
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(of * int(amount[:-1]) / 100)
    return int(amount)
