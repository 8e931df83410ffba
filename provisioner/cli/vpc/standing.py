"""Where an attachment stands, in words: what its controller last said of it. Pure."""

from __future__ import annotations

from typing import Literal

from provisioner.api import VPCAttachment
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import Condition
from provisioner.network.control.report.vpc import is_enforced

Standing = Literal["Enforced", "Waits", "Stuck"]
"""Enforced: its DPU has confirmed what it asks for, be it that nothing passes. Waits: it goes on by itself. Stuck: it
waits for a person."""


def ready_of(attachment: VPCAttachment) -> Condition | None:
    """Its condition Ready, if that is of its present spec."""
    found = find_condition(attachment.status.conditions, "Ready")
    is_present = found is not None and (found.observed_generation or 0) >= (attachment.metadata.generation or 0)
    return found if is_present else None


def standing_of(attachment: VPCAttachment) -> Standing:
    """By its status, and by its spec as it is now."""
    ready = ready_of(attachment)
    if ready is None or ready.reason.startswith("WaitsFor") or ready.reason.endswith("NotReleased"):
        return "Waits"
    return "Enforced" if is_enforced(attachment) else "Stuck"


def waits_for(attachment: VPCAttachment) -> str:
    """What it waits for; empty if its DPU has confirmed what it asks for."""
    if standing_of(attachment) == "Enforced":
        return ""
    ready = ready_of(attachment)
    if ready is None:
        return "Unobserved: the controllers have not looked at it yet (group network)"
    return f"{ready.reason}: {ready.message}"


def addresses_of(attachment: VPCAttachment) -> str | None:
    """`10.1.0.3, fd00:1::3`; None before it has any."""
    return ", ".join(attachment.status.addresses) or None
