"""What `why` tells of who the machine is: what it proved, what waits for a person, who contested. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.wording import ago, clip
from provisioner.api.servers.attestation import CREDENTIAL_CONTESTED
from provisioner.cli.why.subject import ServerSubject

UNLIKE_THE_PROOF: Final = frozenset(
    {
        *("FirmwareMismatch", "BootProgramMismatch", "FirmwareNotApproved", "EventLogMissing", "ProofMissing"),
        *("TpmNotReset", "EndorsementKeyMismatch"),
    }
)
"""Why a join is refused that an earlier proof stands against."""


def identity(subject: ServerSubject) -> Iterable[str]:
    """Nothing where nothing was proved, contested or shown."""
    status = subject.server.status
    lines = []
    contested = find_condition(status.conditions, CREDENTIAL_CONTESTED)
    if contested is not None and contested.status == "True":
        lines.append(f"contested: {clip(contested.message, 400)}")
    proof = find_condition(status.conditions, "Attested")
    if proof is not None and proof.reason == "EventLogMissing":
        lines.append(f"not proved: {clip(proof.message, 400)}")
    attested = status.attestation
    if attested is None:
        return lines
    if attested.endorsement_key_sha256 is not None and attested.time is not None:
        of_boot = (
            "this boot" if status.order is not None and attested.order_id == status.order.id else "an earlier boot"
        )
        firmware = f", firmware as in {attested.firmware_profile}" if attested.firmware_profile else ""
        lines.append(
            f"proved by TPM for {of_boot}, {ago(parse_time(attested.time), subject.now)} ago: endorsement key "
            f"{attested.endorsement_key_sha256[:19]}… ({attested.known_by}){firmware}"
        )
        joined = find_condition(status.conditions, "Joined")
        if joined is not None and joined.status == "False" and joined.reason in UNLIKE_THE_PROOF:
            lines.append(
                f"what it shows is not what is on record ({joined.reason}); if firmware, TPM or mainboard were changed "
                f"on purpose: kubectl provision attestation forget {subject.server.name}, for another TPM --key"
            )
    seen = attested.pending
    if seen is not None:
        known = seen.endorsement_key_sha256 == subject.server.spec.endorsement_key_sha256
        if not known:
            by = f", for which {seen.authority} vouches" if seen.authority else ""
            lines.append(
                f"a machine showed endorsement key {seen.endorsement_key_sha256}{by}; if it is its own: "
                f"kubectl provision attestation approve {subject.server.name}"
            )
        if subject.firmware_obstacle is not None:
            lines.append(f"its firmware cannot be approved: {clip(subject.firmware_obstacle, 600)}")
        elif seen.firmware_profile is not None and subject.firmware_is_approved:
            lines.append(
                f"its firmware is approved since, by FirmwareProfile {seen.firmware_profile}: its next boot proves it"
            )
        elif seen.firmware_profile is not None:
            lines.append(
                f"its firmware is not approved: look at FirmwareProfile {seen.firmware_profile}, then: kubectl "
                f"provision attestation approve {subject.server.name} --firmware {seen.firmware_profile}"
            )
    return lines
