"""Whether the boot before the ordered one still runs. Pure.

A BMC that carries an order out ends what ran before. Where the agent in the running system does, or a hand at the power
button, the order is given before that: as long as the old kubelet lives, pods live beside it and speak from the
server's address, with any boot id that they invent.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.meta import parse_time

LEASE_SECONDS: Final = 40
"""What a kubelet's Lease lasts, if it does not say so. It is renewed after a quarter of that."""
SLACK: Final = timedelta(seconds=2)
CLOCK_AHEAD: Final = timedelta(seconds=25)
"""A Lease from further in the future is by a clock that is wrong, and says nothing."""


def old_boot_runs(lease: Mapping[str, Any] | None, now: datetime) -> bool:
    """Whether the Node's Lease was renewed so lately that the next renewal is not overdue.

    The new boot cannot have renewed it: it has no certificate before it has joined. The renewal is by the node's clock;
    one that is slow hides the old boot, one that is fast makes the new one wait for as long.
    """
    spec = (lease or {}).get("spec") or {}
    renewed = spec.get("renewTime")
    if not renewed:
        return False
    age = now - parse_time(renewed)
    return -CLOCK_AHEAD <= age <= timedelta(seconds=(spec.get("leaseDurationSeconds") or LEASE_SECONDS) / 4) + SLACK
