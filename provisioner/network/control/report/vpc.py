"""What is said of a VPC: pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from provisioner.api import VPC, VPCAttachment
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.network.vpc import VPCPeerStatus, VPCStatus
from provisioner.network.control.compile.trouble import Trouble


def is_enforced(attachment: VPCAttachment) -> bool:
    """Whether its DPU has confirmed what it asks for, be it that nothing passes."""
    ready = find_condition(attachment.status.conditions, "Ready")
    return ready is not None and (ready.status == "True" or ready.reason == "Quarantined")


def vpc_status(
    vpc: VPC,
    vni: int | None,
    attachments: Iterable[VPCAttachment],
    peers: tuple[VPCPeerStatus, ...],
    trouble: Trouble | None,
    now: datetime,
) -> VPCStatus:
    """The whole status. peers: what each of them holds. trouble: why something of it is not as asked for."""
    found = list(attachments)
    said = trouble
    if said is None and vni is None:
        said = Trouble(reason="WaitsForClaims", message="a VXLAN network identifier is being claimed")
    reason, message = "Allocated", f"its VXLAN network identifier is {vni}"
    if said is not None:
        reason, message = said.reason, said.message
    return VPCStatus(
        vni=vni,
        attachments=len(found),
        enforced_attachments=sum(1 for each in found if is_enforced(each)),
        peers=peers,
        conditions=(condition_of(vpc, "Ready", said is None, reason, message, now),),
    )
