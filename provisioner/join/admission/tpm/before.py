"""What the record of the last proof says to the next one: what a kexec continues, and that a boot began by a reset."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.api.machinery.values import Sha256Digest
from provisioner.api.servers.attestation import AttestationStatus
from provisioner.api.servers.server import Server
from provisioner.attestation.continuation import ProvedBoot
from provisioner.attestation.outcome import EvidenceRefused, Reason
from provisioner.join.admission.attestation import EvidenceQuestion
from provisioner.join.admission.status import is_joined
from provisioner.join.admission.successor import Successor


@dataclass(frozen=True)
class Predecessor:
    """The proof on record that a system continues, and the digests by which PCR 14 was extended since."""

    boot: ProvedBoot
    hand_overs: tuple[bytes, ...]
    firmware_profile: str | None
    firmware_digest: str | None


def find_predecessor(question: EvidenceQuestion, successor: Successor) -> Predecessor | EvidenceRefused | None:
    """Of a system that has the successor's request key. None if the system before it had proved nothing, or not enough
    is on record; refused if that one has not said by what it extends PCR 14, or one that was proved and has joined says
    that it is another: else root there would be spared the proof, by a lie, in a pool with attestation Optional.

    An answer that was lost is asked for again: then the proof on record is the asking boot's own.
    """
    attested, order = question.server.status.attestation, question.order
    boot = _proved_boot(attested)
    if attested is None or boot is None or attested.boot_id is None:
        return None
    known = attested.boot_id.lower()
    if attested.order_id == order.id and known == question.request.boot_id.lower():
        return Predecessor(boot, (), attested.firmware_profile, attested.firmware_digest)
    if order.boot_id_before is None or known != order.boot_id_before.lower():
        if not _was_claimed(question.server, attested) or not is_joined(question.server):
            return None
        return EvidenceRefused(
            Reason.HAND_OVER_UNREPORTED,
            f"boot {known} was proved and has joined, and it is boot {order.boot_id_before} that reports by what it "
            "extends PCR 14: the system that runs says another boot id than it proved; have the server booted by its "
            "BMC",
        )
    digest = successor.hand_over_sha256
    if digest is None:
        return EvidenceRefused(
            Reason.HAND_OVER_UNREPORTED,
            f"boot {known}, which started this system by kexec, has not reported by what it extends PCR 14; have the "
            "server booted by its BMC",
        )
    return Predecessor(boot, (_raw(digest),), attested.firmware_profile, attested.firmware_digest)


def reset_count_before(question: EvidenceQuestion, endorsement_key: str) -> int | None:
    """What the reset count of the TPM with that key must have passed where the firmware is said to have started the
    asking boot. None if nothing is on record of that TPM, or this very boot is: it asks again.
    """
    attested = question.server.status.attestation
    if attested is None or attested.endorsement_key_sha256 != endorsement_key or _asks_again(question, attested):
        return None
    return attested.tpm_reset_count


def _asks_again(question: EvidenceQuestion, attested: AttestationStatus) -> bool:
    """Whether the boot on record asks once more: for its order, or, as long as it got no certificate, for the one that
    took its place. A machine without a BMC waits for that in the same boot.

    One that has joined does not ask for another order: its boot id is whatever root on it says.
    """
    if (attested.boot_id or "").lower() != question.request.boot_id.lower():
        return False
    if attested.order_id == question.order.id:
        return True
    return _was_claimed(question.server, attested) and not is_joined(question.server)


def _was_claimed(server: Server, attested: AttestationStatus) -> bool:
    """Whether the configuration that was handed out last went to the boot on record."""
    join = server.status.join
    return (
        join is not None
        and join.order_id == attested.order_id
        and (join.boot_id or "").lower() == (attested.boot_id or "").lower()
    )


def _proved_boot(attested: AttestationStatus | None) -> ProvedBoot | None:
    if attested is None:
        return None
    endorsement, attestation = attested.endorsement_key_sha256, attested.attestation_key_sha256
    digest, register = attested.pcr_digest, attested.pcr14
    resets, restarts = attested.tpm_reset_count, attested.tpm_restart_count
    if endorsement is None or attestation is None or digest is None or register is None:
        return None
    if resets is None or restarts is None:
        return None
    return ProvedBoot(
        endorsement_key_sha256=Sha256Digest(endorsement),
        attestation_key_sha256=attestation,
        pcr_digest=Sha256Digest(digest),
        hand_over_pcr=_raw(register),
        reset_count=resets,
        restart_count=restarts,
    )


def _raw(digest: str) -> bytes:
    return bytes.fromhex(digest.removeprefix("sha256:"))
