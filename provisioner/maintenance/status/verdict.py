"""How a Maintenance ends, or goes back to waiting. Written down before anything of it is undone. Pure.

The condition Succeeded holds it: True or False with a final cause; Unknown with a cause for which it goes back to
waiting. Whoever reads the status afterwards, after a crash at any moment, undoes the same and writes the same end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.nodes.maintenance import SUCCEEDED, MaintenancePhase, MaintenanceStatus

Cause = Literal[
    "Booted",
    "DrainEnded",
    "DoneBefore",
    "Withdrawn",
    "Deleted",
    "ServerGone",
    "NodeGone",
    "NodeReplaced",
    "DrainTimedOut",
    "NoRebootMethod",
    "RebootFailed",
    "WrongImage",
    "NodeNotReady",
    "NotVerified",
    "JobStarted",
    "Held",
    "HostInUse",
    "OverBudget",
    "ImageUnavailable",
    "PoolGone",
    "NodeRefused",
    "NotItsTurn",
]

FINAL_PHASE_OF: Final[dict[Cause, MaintenancePhase]] = {
    "Booted": "Completed",
    "DrainEnded": "Completed",
    "DoneBefore": "Completed",
    "Withdrawn": "Cancelled",
    "Deleted": "Cancelled",
    "ServerGone": "Failed",
    "NodeGone": "Failed",
    "NodeReplaced": "Failed",
    "DrainTimedOut": "Failed",
    "NoRebootMethod": "Failed",
    "RebootFailed": "Failed",
    "WrongImage": "Failed",
    "NodeNotReady": "Failed",
    "NotVerified": "Failed",
}
"""Those that are not here go back to waiting."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`phase`: the final one, or Waiting. `time`: when it was reached, RFC 3339."""

    cause: Cause
    phase: MaintenancePhase
    message: str
    time: str


def read_verdict(status: MaintenanceStatus) -> Verdict | None:
    """The verdict that was written and is not carried out yet, or of a Maintenance that has ended."""
    found = find_condition(status.conditions, SUCCEEDED)
    if found is None:
        return None
    causes: tuple[Cause, ...] = get_args(Cause)
    cause = next((each for each in causes if each == found.reason), None)
    if cause is None:
        return None
    phase: MaintenancePhase = FINAL_PHASE_OF.get(cause, "Waiting")
    return Verdict(cause=cause, phase=phase, message=found.message, time=found.last_transition_time)
