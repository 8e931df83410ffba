"""How often a tenant may have the DPUs of its VPCs told anew, all of them: in measure with how many they are.

Each change of a VPC of 1,000 attachments is 1,000 objects of some 60 kB, so that one who changes it ten times a second
would fill the cluster's store within minutes. What a change makes of a DPU's own port does not wait for this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SECONDS_A_DPU: Final = 0.01
AHEAD_SECONDS: Final = 2.0
"""Of so many seconds a tenant may be in arrears before it waits."""
MOST_REMEMBERED: Final = 4096


class TenantTurns:
    """By tenant; "" is nobody's, and never waits. `clock` is monotonic, in seconds. For one thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._paid: dict[str, float] = {}

    def wait(self, tenant: str) -> float:
        """Seconds until the tenant's next turn; 0: it is now."""
        return max(0.0, self._paid.get(tenant, 0.0) - AHEAD_SECONDS - self._clock())

    def take(self, tenant: str, dpus: int) -> None:
        """It was the tenant's turn, with so many DPUs."""
        now = self._clock()
        if len(self._paid) >= MOST_REMEMBERED:
            self._paid = {each: paid for each, paid in self._paid.items() if paid > now}
        if tenant:
            self._paid[tenant] = max(now, self._paid.get(tenant, 0.0)) + dpus * SECONDS_A_DPU
