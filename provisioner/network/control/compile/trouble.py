"""Why something is not as it was asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """reason: CamelCase, for a condition. message: what was observed, what was expected, and the remedy.

    It is read by the tenant on its own object: it names nothing of another tenant.
    """

    reason: str
    message: str
