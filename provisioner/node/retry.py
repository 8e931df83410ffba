"""How long to wait before the next try. Pure: the outcome and a random number in, seconds out."""

from __future__ import annotations

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
NO_ROUTE_WAIT_SECONDS = 0.25
REFUSED_WAIT_SECONDS = 15.0
LONGEST_ASKED_WAIT_SECONDS = 120.0

NO_ROUTE = "NoRoute"
"""The network is not up yet: systemd-networkd drops stage-1's address for a moment while it takes over."""
NO_ANSWER = "NoAnswer"
"""Nobody answered, or the service said that it cannot now (HTTP 5xx, 429)."""
NOT_YET = "NotYet"
"""The service knows us and asks for patience (HTTP 409, 425)."""
REFUSED = "Refused"
"""The service will not have us (HTTP 4xx); a person or a new boot order may change that."""


def wait_seconds(outcome: str, failures: int, asked_seconds: float | None, chance: float) -> float:
    """Seconds to wait after the `failures`-th try (from 1) in a row with that outcome.

    `asked_seconds`: what the service asked for (Retry-After), bounded here, since a typo there must not park a rack.
    `chance`: a random number in [0, 1); it spreads servers that were powered on together over half of the wait.
    """
    if asked_seconds is not None and outcome in (NO_ANSWER, NOT_YET):
        wait = min(max(asked_seconds, NO_ROUTE_WAIT_SECONDS), LONGEST_ASKED_WAIT_SECONDS)
        return wait * (1.0 + 0.25 * chance)
    if outcome == NO_ROUTE:
        # The first seconds are a matter of milliseconds; a cable that is out is not.
        wait = NO_ROUTE_WAIT_SECONDS if failures <= 40 else 2.0
    elif outcome == REFUSED:
        wait = min(REFUSED_WAIT_SECONDS * failures, 60.0)
    else:
        wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(failures - 1, 16), LONGEST_WAIT_SECONDS)
    return wait * (0.5 + 0.5 * chance)
