"""Why an attachment is not enforced yet: what its controller last said, and what the same rules say now. Pure."""

from __future__ import annotations

from provisioner.api import DPUNetwork, NetworkClaim
from provisioner.api.machinery.conditions import find_condition
from provisioner.cli.vpc.subject import AttachmentSubject, Hidden
from provisioner.network.control.claims.wanted import vpc_trouble, want_for_attachment
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.security import group_trouble
from provisioner.network.control.compile.trouble import Trouble


def present_trouble(subject: AttachmentSubject) -> Trouble | None:
    """What keeps it from being enforced now, by the controllers' own rules, as far as the asker may read what they
    judge; None if nothing of that does."""
    at, vpc, attachment = subject.place, subject.vpc, subject.attachment
    if isinstance(at, Trouble):
        return at
    vni = vpc.status.vni if vpc is not None else None
    if vpc is None or vni is None:
        return vpc_trouble(attachment, vpc, vni)
    if isinstance(at, FunctionPlace) and not isinstance(subject.claims, Hidden):
        wanted = want_for_attachment(attachment, vpc, vni, at, held_claims(subject), subject.claims.get)
        if wanted.trouble is not None:
            return wanted.trouble
    return group_trouble(vpc, attachment, subject.groups)


def held_claims(subject: AttachmentSubject) -> list[NetworkClaim]:
    """Those of the claims that were read which are the attachment's."""
    if isinstance(subject.claims, Hidden):
        return []
    uid = subject.attachment.metadata.uid
    return [
        each for each in subject.claims.values() if each.spec.holder.uid == uid and each.status.released_time is None
    ]


def agent_trouble(subject: AttachmentSubject) -> Trouble | None:
    """What the DPU's agent says is wrong; None if it says nothing, or may not be asked."""
    network = subject.network
    if not isinstance(network, DPUNetwork):
        return None
    applied = find_condition(network.status.conditions, "Applied")
    if applied is None or applied.status == "True":
        return None
    return Trouble(reason=applied.reason, message=applied.message)


def is_told_and_unseen(subject: AttachmentSubject) -> bool:
    """Whether the DPU has confirmed the attachment, and the controllers have not taken that up."""
    network, wanted = subject.network, subject.attachment.status.network_generation
    if not isinstance(network, DPUNetwork) or wanted is None:
        return False
    ready = find_condition(subject.attachment.status.conditions, "Ready")
    waits = ready is not None and ready.reason == "WaitsForDPU"
    return waits and (network.status.observed_generation or 0) >= wanted
