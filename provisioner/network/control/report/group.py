"""What is said of a SecurityGroup: pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from provisioner.api import SecurityGroup, VPCAttachment
from provisioner.api.machinery.conditions import condition_of
from provisioner.api.network.security_group import SecurityGroupStatus
from provisioner.network.control.report.vpc import is_enforced

MOST_NAMED: Final = 3


def group_status(group: SecurityGroup, attachments: Iterable[VPCAttachment], now: datetime) -> SecurityGroupStatus:
    """The whole status. attachments: those for which it holds."""
    found = sorted(attachments, key=lambda each: each.name)
    waiting = [each.name for each in found if not is_enforced(each)]
    reason, message = "Unused", "no attachment or VPC names it"
    if waiting:
        named = ", ".join(waiting[:MOST_NAMED]) + (", …" if len(waiting) > MOST_NAMED else "")
        reason = "WaitsForAttachments"
        message = f"not enforced for {len(waiting)} of {len(found)} attachments ({named}): their conditions tell why"
    elif found:
        reason, message = "Enforced", f"the DPUs have confirmed it for every attachment ({len(found)})"
    return SecurityGroupStatus(
        attachments=len(found), conditions=(condition_of(group, "Ready", not waiting, reason, message, now),)
    )
