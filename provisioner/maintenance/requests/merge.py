"""What several requestors of one Maintenance want together. Pure.

The strongest action, the most urgent policy, the earliest deadline. Of two who name different Images the one that asked
first is heard; the other is refused, for one boot cannot land on two images: intake files it apart (in a Maintenance of
its own, which waits); one that was written into the same Maintenance is named in `refused`, and counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from provisioner.api.maintenance import (
    ACTIONS,
    POLICIES,
    Maintenance,
    MaintenanceAction,
    MaintenancePolicy,
    Requestor,
)
from provisioner.api.meta import parse_time


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is wanted. `image`: the one that was named; None for the assigned one. `since`: when the first one asked."""

    action: MaintenanceAction
    policy: MaintenancePolicy
    deadline: datetime | None
    image: str | None
    since: datetime | None
    heard: tuple[Requestor, ...]
    refused: tuple[Requestor, ...] = ()

    @property
    def boots(self) -> bool:
        return self.action != "Drain"

    @property
    def keeps_drained(self) -> bool:
        """Whether somebody wants the server out of use until further notice, whatever else is done."""
        return any(r.action == "Drain" for r in self.heard)


def merge(maintenance: Maintenance) -> Wanted | None:
    """What its requestors want; None without any."""
    requestors = sorted(maintenance.spec.requestors, key=lambda r: _asked(r, maintenance))
    image = next((r.image_ref for r in requestors if r.image_ref is not None), None)
    heard = tuple(r for r in requestors if r.image_ref in (None, image))
    if not heard:
        return None
    deadlines = [parse_time(r.deadline_time) for r in heard if r.deadline_time is not None]
    first = _asked(heard[0], maintenance)[0]
    return Wanted(
        action=max((r.action for r in heard), key=ACTIONS.index),
        policy=max((r.policy for r in heard), key=POLICIES.index),
        deadline=min(deadlines, default=None),
        image=image,
        since=parse_time(first) if first else None,
        heard=heard,
        refused=tuple(r for r in requestors if r.image_ref not in (None, image)),
    )


def _asked(requestor: Requestor, maintenance: Maintenance) -> tuple[str, str]:
    return requestor.requested_time or maintenance.metadata.creation_timestamp or "", requestor.name
